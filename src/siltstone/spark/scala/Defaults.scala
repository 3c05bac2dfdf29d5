package org.apache.spark.sql.siltstone

import org.apache.spark.sql.catalyst.expressions.{Cast, Literal}
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.catalyst.util.ResolveDefaultColumns
import org.apache.spark.sql.connector.catalog.Column
import org.apache.spark.sql.types._

/** The default of a column as a value, in the metadata of its field: what the store keeps is a constant. */
object Defaults {
  private val key = "siltstone:default"

  /** The columns of a new table, with their defaults. */
  def of(columns: Array[Column], schema: StructType): StructType =
    StructType(columns.toSeq.zip(schema.fields.toSeq).map { case (column, field) =>
      Defaults.field(column.name, field.dataType, field.nullable, Option(column.defaultValue).map(_.getSql))
    })

  def field(name: String, kind: DataType, nullable: Boolean, sql: Option[String]): StructField = {
    val text = sql.flatMap(each => Option(valueOf(name, kind, each)))
    val notes = text.fold(Metadata.empty)(each => new MetadataBuilder().putString(key, each).build())
    StructField(name, kind, nullable, notes)
  }

  private def valueOf(name: String, kind: DataType, sql: String): String = {
    val leaves = CatalystSqlParser.parseExpression(sql).collectLeaves()
    if (!leaves.forall(_.isInstanceOf[Literal])) {
      throw new UnsupportedOperationException(
        s"the default $sql of column $name is no constant: give what is made for each row with the row")
    }
    val value = ResolveDefaultColumns.analyze(name, kind, sql, "DEFAULT").eval()
    if (value == null) null
    else kind match {
      case BinaryType => value.asInstanceOf[Array[Byte]].map(each => f"$each%02x").mkString
      case _: DayTimeIntervalType => value.toString
      case _ =>
        val text = Cast(Literal(value, kind), StringType, Some("UTC")).eval().toString
        if (kind == TimestampType) text + "Z" else text
    }
  }
}
