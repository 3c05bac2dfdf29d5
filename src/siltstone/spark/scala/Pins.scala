package org.apache.spark.sql.siltstone

import java.lang.ref.{Cleaner, WeakReference}
import java.util.{HashMap, LinkedHashMap, Map => JMap, UUID, WeakHashMap}
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan, ParsedStatement}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.InputPartition
import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}
import org.apache.spark.sql.execution.command.ExplainCommand

/** A store at one seq, which Python keeps for as long as this object is reachable.
  *
  * What is known of the seq never changes, so what was loaded and planned at it is kept here.
  */
final class Pin private (val uri: String, val store: String, val seq: Long, val token: String) {
  private val sources = new HashMap[String, Source]()
  private val plans = new LinkedHashMap[AnyRef, Seq[InputPartition]](16, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[AnyRef, Seq[InputPartition]]): Boolean =
      size > Pin.plansMax
  }

  /** The table of a name at this seq. */
  def source(name: String, load: => Option[Source]): Option[Source] = synchronized {
    if (!sources.containsKey(name)) load.foreach(sources.put(name, _))
    Option(sources.get(name))
  }

  /** The partitions of a scan, which equal scans share. */
  def plan(scan: AnyRef, make: => Seq[InputPartition]): Seq[InputPartition] =
    synchronized(Option(plans.get(scan))).getOrElse {
      val made = make
      synchronized(plans.put(scan, made))
      made
    }

  /** The same seq, which nothing keeps. */
  def released: Pin = new Pin(uri, store, seq, "")

  override def equals(other: Any): Boolean = other match {
    case that: Pin => store == that.store && seq == that.seq && uri == that.uri
    case _ => false
  }
  override def hashCode(): Int = (store, seq).##
  override def toString: String = s"seq $seq"
}

object Pin {
  private val plansMax = 64
  private val collectAbove = 1024
  private val cleaner = Cleaner.create()
  private val live = new HashMap[String, WeakReference[Pin]]() // by token

  /** Pin a store; `more` says at which seq, if not the newest. */
  def take(uri: String, more: ObjectNode => Unit = _ => ()): Pin = {
    val token = UUID.randomUUID().toString
    val head = Daemon.request("pin").put("token", token).put("uri", uri)
    more(head)
    val answer = Daemon.call(head)._1
    val fresh = new Pin(uri, answer.get("store").asText, answer.get("seq").asLong, token)
    cleaner.register(fresh, () => release(token))
    val found = live.synchronized {
      val same = live.values.iterator.asScala.map(_.get).find(each => each != null && each == fresh)
      live.put(token, new WeakReference(fresh))
      // One that is not used is collected soon; what is loaded at the older one is known already.
      same.getOrElse(fresh)
    }
    if (count % collectAbove == 0) System.gc() // else the next collection may be long in coming
    found
  }

  def count: Int = live.synchronized(live.size)

  private def release(token: String): Unit = {
    live.synchronized(live.remove(token))
    if (Daemon.pid.isDefined) {
      val head = Daemon.request("release")
      head.putArray("tokens").add(token)
      try Daemon.call(head)
      catch { case _: SiltstoneException => () } // it died, and its pins with it
    }
  }

  /** Pin everything in another process; what it cannot have, it says when that is used. */
  def takeAgain(connection: Connection): Unit = {
    val all = live.synchronized(live.values.asScala.map(_.get).filter(_ != null).toSeq)
    all.foreach { pin =>
      connection.send(
        Daemon.request("pin").put("token", pin.token).put("uri", pin.uri)
          .put("seq", pin.seq).put("store", pin.store),
        Array.emptyByteArray)
      try connection.receive()
      catch {
        case e: SiltstoneException.Gone => throw e
        case _: SiltstoneException => ()
      }
    }
  }
}

/** All tables of a statement have one pin: Spark's tracker of its analysis says which it is.
  *
  * Its tables keep it, not this map: entries of statements that are over go when the next one comes.
  */
object Statement {
  private val pins = new WeakHashMap[AnyRef, HashMap[String, WeakReference[Pin]]]()

  /** What this thread runs. */
  def running: Option[QueryExecution] =
    Option(SparkSession.active.sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY))
      .flatMap(each => Option(SQLExecution.getQueryExecution(each.toLong)))

  /** Whether that is a statement that writes, or is explained as one. */
  def writes: Boolean = running.map(_.analyzed).exists {
    case explained: ExplainCommand => isWrite(explained.logicalPlan)
    case other => isWrite(other)
  }
  private def isWrite(plan: LogicalPlan): Boolean =
    plan.isInstanceOf[Command] || plan.isInstanceOf[ParsedStatement]

  def pin(uri: String): Pin = QueryPlanningTracker.get match {
    case None => Pin.take(uri)
    case Some(tracker) =>
      val mine = pins.synchronized(
        pins.computeIfAbsent(tracker, _ => new HashMap[String, WeakReference[Pin]]()))
      mine.synchronized(Option(mine.get(uri)).flatMap(each => Option(each.get)).getOrElse {
        val taken = Pin.take(uri)
        mine.put(uri, new WeakReference(taken))
        taken
      })
  }
}
