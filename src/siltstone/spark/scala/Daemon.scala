package org.apache.spark.sql.siltstone

import java.io.{BufferedReader, File, IOException, InputStreamReader}
import java.nio.channels.ClosedByInterruptException
import java.nio.file.{Files, Path}
import java.util.Comparator
import java.util.concurrent.{CompletableFuture, ConcurrentLinkedDeque, ExecutionException, TimeUnit}
import java.util.concurrent.TimeoutException
import java.util.concurrent.atomic.AtomicReference
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.{SparkConf, SparkEnv, SparkFiles}
import org.apache.spark.api.python.PythonUtils
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.util.{ShutdownHookManager, Utils}

/** The Python process of this JVM: started when it is first asked, and again after it died.
  *
  * What it is started with comes from the SparkConf of this JVM alone, never from a session: whoever
  * may run SQL may change a session's settings.
  */
object Daemon {
  val json = new ObjectMapper()
  private val startSeconds = 120L
  private val endSeconds = 2L
  private val socketBytesMax = 100 // sun_path has 108; the name and a zero are in it
  private val idleMax = 32
  private val idle = new ConcurrentLinkedDeque[Connection]()
  @volatile private var known: Running = _

  /** A process and its socket. Spark loads these classes more than once in a JVM, for sessions and
    * for tasks, and all of them use one process: so it is kept where only classes of Java are seen.
    */
  final class Running(val process: Process, val socket: Path) {
    override def equals(other: Any): Boolean = other match {
      case that: Running => socket == that.socket
      case _ => false
    }
    override def hashCode(): Int = socket.hashCode
  }
  @volatile private var place: (SparkEnv, AtomicReference[Array[AnyRef]]) = _

  /** Where the process of this application is kept: a later one in this JVM has other settings. */
  private def shared: AtomicReference[Array[AnyRef]] = {
    val env = SparkEnv.get
    if (place == null || (place._1 ne env)) {
      val key = s"siltstone.daemon ${executable(conf)} ${settings(conf)}"
      place = (env, System.getProperties.computeIfAbsent(
        key, (_: Any) => new AtomicReference[Array[AnyRef]]()
      ).asInstanceOf[AtomicReference[Array[AnyRef]]])
    }
    place._2
  }
  private def conf: SparkConf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf())
  private def running: Running = shared.get match {
    case Array(process: Process, socket: Path) => new Running(process, socket)
    case _ => null
  }

  /** The folder by which the processes of an application know it: Spark tells its Python workers. */
  def application: String =
    SparkEnv.get.blockManager.diskBlockManager.localDirsString.mkString(",")

  /** The head of a request. */
  def request(op: String): ObjectNode = json.createObjectNode().put("op", op)

  /** Ask, and ask again if the process died meanwhile: such a request changes nothing, or does it once. */
  def call(head: ObjectNode, payload: Array[Byte] = Array.emptyByteArray): (JsonNode, Array[Byte]) =
    again(once(head, payload))

  /** Ask once for a commit; if the process dies meanwhile nobody knows whether it was made. */
  def change(head: ObjectNode, payload: Array[Byte], what: String): (JsonNode, Array[Byte]) =
    try once(head, payload)
    catch {
      case gone: SiltstoneException.Gone => throw new SiltstoneException(
        "InDoubtError",
        s"the Python process of siltstone ended in the middle of a commit: look whether $what, or" +
          " give a statement that writes a token, WITH (token = 'app:1'), and run it again: it is" +
          " applied once", Some(gone))
    }

  /** Do something that begins anew with another connection if the process died. */
  def again[T](body: => T): T =
    try body
    catch {
      case gone: SiltstoneException.Gone =>
        // One that is about to end still takes connections, and answers none.
        gone.running.process.waitFor(endSeconds, TimeUnit.SECONDS)
        Iterator.continually(idle.pollFirst()).takeWhile(_ != null).foreach(_.close())
        body
    }

  private def once(head: ObjectNode, payload: Array[Byte]): (JsonNode, Array[Byte]) = {
    val connection = take()
    var isWhole = false
    try {
      connection.send(head, payload)
      val answer = connection.receive()
      isWhole = true
      answer
    } catch {
      case e: SiltstoneException.Gone => throw e
      case e: SiltstoneException => isWhole = true; throw e
    } finally if (isWhole) give(connection) else connection.close()
  }

  /** A connection that nobody uses; it must be given back, or closed. */
  def take(): Connection = {
    val now = running
    var found = idle.pollFirst()
    while (found != null && found.running != now) {
      found.close()
      found = idle.pollFirst()
    }
    if (found != null) found else connected(now)
  }

  def give(connection: Connection): Unit =
    if (connection.isOpen && connection.running == running && idle.size < idleMax) {
      idle.addFirst(connection)
    } else connection.close()

  /** Start the process, in a thread; what goes wrong is said to the first that needs it. */
  def begin(): Unit = {
    val starting = new Thread(() =>
      try give(take())
      catch { case NonFatal(_) => () }, "siltstone-daemon")
    starting.setDaemon(true)
    starting.start()
  }

  /** The number of the process, if it runs. */
  def pid: Option[Long] = Option(running).filter(_.process.isAlive).map(_.process.pid)

  private def connected(now: Running): Connection = {
    val used = if (now == null) started(now) else now
    val connection =
      try new Connection(used)
      catch {
        case e: ClosedByInterruptException => throw e // this thread is to end; the process is well
        case _: IOException => new Connection(started(used))
      }
    // A frame that was planned before must still find its rows: its seq is leased again first.
    if (connection.running != known) synchronized {
      if (connection.running != known) {
        Pin.takeAgain(connection)
        known = connection.running
      }
    }
    connection
  }

  /** The process that runs, another one than the dead one. */
  private def started(dead: Running): Running = {
    val kept = shared
    kept.synchronized(startedIn(kept, dead))
  }

  private def startedIn(kept: AtomicReference[Array[AnyRef]], dead: Running): Running = {
    val now = running
    if (now != dead) now
    else {
      val fresh = launched(conf)
      kept.set(Array(fresh.process, fresh.socket))
      if (dead != null) {
        dead.process.destroyForcibly()
        deleted(dead.socket.getParent)
      }
      fresh
    }
  }

  private def launched(conf: SparkConf): Running = {
    val python = executable(conf)
    val told = settings(conf).toString
    val folder = folderIn(Seq(System.getProperty("java.io.tmpdir"), "/tmp").map(Path.of(_)))
    ShutdownHookManager.registerShutdownDeleteDir(folder.toFile) // if Python was killed, and cannot
    val socket = folder.resolve("s")
    val builder = new ProcessBuilder(
      python, "-m", "siltstone.spark.daemon", socket.toString, told)
    builder.redirectError(ProcessBuilder.Redirect.INHERIT)
    builder.environment.put("PYTHONPATH", pythonPath(conf))
    val process =
      try builder.start()
      catch {
        case e: IOException =>
          deleted(folder)
          throw SiltstoneException.unavailable(
            s"Python does not start: ${e.getMessage}; $settingsOfPython", e)
      }
    try {
      greeted(process, python)
      new Running(process, socket)
    } catch {
      case e: Throwable =>
        process.destroyForcibly()
        deleted(folder)
        throw e
    }
  }

  private val settingsOfPython =
    "set spark.siltstone.python to a Python that has siltstone, when the application starts"

  private def executable(conf: SparkConf): String =
    conf.getOption("spark.siltstone.python")
      .orElse(conf.getOption("spark.pyspark.python"))
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")

  /** Where Python looks for modules, as Spark's own workers have it. */
  private def pythonPath(conf: SparkConf): String = {
    val files = scala.util.Try(SparkFiles.getRootDirectory()).toOption.toSeq
    val named = conf.getOption("spark.submit.pyFiles").toSeq.flatMap(_.split(",")).filter(_.nonEmpty)
    val archives = for (root <- files; each <- named) yield new File(root, new File(each).getName).getPath
    PythonUtils.mergePythonPaths(
      (files ++ archives :+ PythonUtils.sparkPythonPath :+ sys.env.getOrElse("PYTHONPATH", "")): _*)
  }

  private def settings(conf: SparkConf): ObjectNode = {
    val found = json.createObjectNode()
    found.set[ObjectNode]("jar", json.readTree(Identity.text))
    val roots = found.putArray("roots")
    conf.getOption("spark.siltstone.roots").toSeq
      .flatMap(_.split(",")).map(_.trim).filter(_.nonEmpty).foreach(each => roots.add(each))
    conf.getOption("spark.siltstone.memory").foreach(text => found.put("memory", size(text)))
    found
  }

  private def size(text: String): Long =
    try JavaUtils.byteStringAsBytes(text)
    catch {
      case _: NumberFormatException => throw new SiltstoneException(
        "RequestError", s"spark.siltstone.memory must be a size, like 512m; got $text")
    }

  /** A new folder, of mode 0700, whose path leaves room for that of a socket. */
  def folderIn(places: Seq[Path]): Path = {
    val short = places.filter(_.toString.getBytes.length + "/siltstone".length + 24 < socketBytesMax)
    short.find(place => Files.isDirectory(place) && Files.isWritable(place))
      .map(Files.createTempDirectory(_, "siltstone"))
      .getOrElse(throw SiltstoneException.unavailable(
        s"a socket has no room in ${places.mkString(" or ")}: its path may have 107 bytes; set" +
          " java.io.tmpdir to a folder with a short name"))
  }

  private def greeted(process: Process, python: String): Unit = {
    val line = CompletableFuture.supplyAsync[String](() =>
      new BufferedReader(new InputStreamReader(process.getInputStream)).readLine())
    val said =
      try line.get(startSeconds, TimeUnit.SECONDS)
      catch {
        case _: TimeoutException =>
          throw SiltstoneException.unavailable(s"$python did not answer in $startSeconds s")
        case e: ExecutionException => throw SiltstoneException.unavailable(e.getMessage, e)
      }
    if (said == null) {
      throw SiltstoneException.unavailable(
        s"$python has no siltstone, or cannot import it (its stderr says why); $settingsOfPython")
    }
    val answer = json.readTree(said)
    if (answer.has("error")) {
      throw new SiltstoneException(answer.get("kind").asText, answer.get("error").asText)
    }
    if (answer.get("identity") != json.readTree(Identity.text)) {
      throw SiltstoneException.unavailable(
        s"the jar is of ${Identity.text}, $python has ${answer.get("identity")}")
    }
  }

  private def deleted(folder: Path): Unit = Utils.tryLogNonFatalError {
    if (Files.isDirectory(folder)) {
      val all = Files.walk(folder)
      try all.sorted(Comparator.reverseOrder[Path]()).iterator.asScala.foreach(Files.deleteIfExists)
      finally all.close()
    }
  }
}

/** Which siltstone this jar is made of, as Python wrote it. */
object Identity {
  lazy val text: String = {
    val found = getClass.getClassLoader.getResourceAsStream("siltstone-identity.json")
    if (found == null) throw SiltstoneException.unavailable("the jar of siltstone does not say whose it is")
    try new String(found.readAllBytes(), "UTF-8") finally found.close()
  }
}
