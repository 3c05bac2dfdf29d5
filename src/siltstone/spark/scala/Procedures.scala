package org.apache.spark.sql.siltstone

import java.util.{Collections, Iterator => JIterator}
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.{LocalScan, Scan}
import org.apache.spark.sql.execution.arrow.ArrowConverters
import org.apache.spark.sql.types.{DataType, StructField, StructType}

object Procedures {
  def list(namespace: Array[String]): Array[Identifier] = {
    val head = Daemon.request("procedures")
    val levels = head.putArray("namespace")
    namespace.foreach(each => levels.add(each))
    Daemon.call(head)._1.get("names").asScala.map(each => Identifier.of(Array("system"), each.asText)).toArray
  }
}

/** A procedure, as Python describes it. Spark takes for bound what is a BoundProcedure, even before
  * it has put the arguments in order: so these are two classes.
  */
class CatalogProcedure(uri: String, called: String) extends UnboundProcedure {
  private val said = Daemon.call(Daemon.request("procedure").put("name", called))._1

  override def name(): String = said.get("name").asText
  override def description(): String = said.get("about").asText
  override def bind(input: StructType): BoundProcedure = new CalledProcedure(uri, name(), description(), said)
}

/** Python runs it while Spark analyses the statement. */
class CalledProcedure(uri: String, override val name: String, override val description: String, said: JsonNode)
    extends BoundProcedure {
  private val types = StructType(said.get("parameters").asScala.toSeq.map(each =>
    StructField(each.get("name").asText, DataType.fromDDL(each.get("type").asText))))

  override def isDeterministic: Boolean = false
  override def parameters(): Array[ProcedureParameter] =
    said.get("parameters").asScala.zip(types).map { case (each, field) =>
      val made = ProcedureParameter.in(field.name, field.dataType).comment(each.get("about").asText)
      if (each.get("default").isNull) made.build()
      else made.defaultValue(each.get("default").asText).build()
    }.toArray

  override def call(input: InternalRow): JIterator[Scan] = {
    val arguments = CatalystTypeConverters.createToScalaConverter(types)(input).asInstanceOf[Row].json
    val head = Daemon.request("call").put("uri", uri).put("name", name)
      .put("arguments", arguments).put("application", Daemon.application)
    val (answer, rows) =
      if (said.get("doubt").isNull) Daemon.call(head)
      else Daemon.change(head, Array.emptyByteArray, said.get("doubt").asText)
    Collections.singletonList[Scan](
      LocalRows(s"siltstone: $name", LocalRows.schemaOf(answer.get("schema").asText), rows)).iterator
  }
}

/** Rows that Python gave as an Arrow stream. */
case class LocalRows(said: String, schema: StructType, stream: Array[Byte]) extends LocalScan {
  override def readSchema(): StructType = schema
  override def description(): String = said
  override def rows(): Array[InternalRow] = LocalRows.read(schema, stream)
}

object LocalRows {
  def schemaOf(json: String): StructType = DataType.fromJson(json).asInstanceOf[StructType]

  def read(schema: StructType, stream: Array[Byte]): Array[InternalRow] = {
    val rows = ArrowConverters.fromIPCStream(stream)._1
    val copy = UnsafeProjection.create(schema)
    try rows.map(copy(_).copy(): InternalRow).toArray finally rows.close()
  }
}
