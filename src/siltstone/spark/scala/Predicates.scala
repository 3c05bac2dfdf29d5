package org.apache.spark.sql.siltstone

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.connector.expressions.{Expression, GeneralScalarExpression, Literal, NamedReference}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.unsafe.types.UTF8String

/** Conditions of a query, as JSON, on their way to Python, which knows which the store answers. */
object Predicates {
  /** For each predicate its SQL, if the store answers it. */
  def answered(source: Source, predicates: Array[Predicate]): Array[Option[String]] = {
    val head = Daemon.request("filters").put("token", source.pin.token).put("table", source.name)
    val texts = head.putArray("predicates")
    predicates.foreach(each => texts.add(node(each).toString))
    Daemon.call(head)._1.get("sql").asScala.toArray
      .map(sql => if (sql.isNull) None else Some(sql.asText))
  }

  /** Whether they leave no row out. */
  def areAll(predicates: Array[Predicate]): Boolean = predicates.forall(_.name == "ALWAYS_TRUE")

  /** All predicates as one condition. A part that was lost would delete or replace more rows. */
  def whole(source: Source, predicates: Array[Predicate]): String = {
    val found = answered(source, predicates)
    if (found.exists(_.isEmpty)) {
      throw new IllegalStateException(s"the store no longer answers ${predicates.mkString(" AND ")}")
    }
    found.flatten.mkString(" AND ")
  }

  private def node(of: Expression): ObjectNode = {
    val made = Daemon.json.createObjectNode()
    of match {
      case call: GeneralScalarExpression =>
        made.put("op", call.name)
        val args = made.putArray("args")
        call.children.foreach(each => args.add(node(each)))
      case column: NamedReference =>
        val path = made.putArray("column")
        column.fieldNames.foreach(each => path.add(each))
      case constant: Literal[_] =>
        text(constant.value).foreach { found =>
          made.put("type", constant.dataType.catalogString)
          if (found != null) made.put("value", found)
        }
      case _ => ()
    }
    made
  }

  /** A constant as a text; None: it has none that says exactly the same. */
  private def text(value: Any): Option[String] = value match {
    case null => Some(null)
    case text: UTF8String => if (text.isValid) Some(text.toString) else None
    case number: java.lang.Float => Some(number.doubleValue.toString)
    case other => Some(other.toString)
  }
}
