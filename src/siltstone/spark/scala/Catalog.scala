package org.apache.spark.sql.siltstone

import java.util.{Map => JMap, Set => JSet}
import java.util.{HashMap, Collections, EnumSet}
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.analysis.{
  CannotReplaceMissingTableException, NoSuchNamespaceException, NoSuchTableException, TableAlreadyExistsException}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{
  LogicalWriteInfo, RowLevelOperationBuilder, RowLevelOperationInfo, WriteBuilder}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A store as a catalog of Spark: spark.sql.catalog.shop is this class, .uri where the store is. */
class SiltstoneCatalog extends StagingTableCatalog with SupportsNamespaces with ProcedureCatalog {
  private var catalog = ""
  private var uri = ""

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    catalog = name
    uri = options.getOrDefault("uri", "")
    if (uri.isEmpty) {
      throw new SiltstoneException(
        "RequestError", s"catalog $name has no store: set spark.sql.catalog.$name.uri")
    }
    OwnCatalog.join(SparkSession.active)
  }
  override def name(): String = catalog
  override def defaultNamespace(): Array[String] = Array.empty

  override def loadTable(id: Identifier): Table = table(id, Statement.pin(uri), isPast = false)
  override def loadTable(id: Identifier, version: String): Table =
    table(id, Pin.take(uri, _.put("version", version)), isPast = true)
  override def loadTable(id: Identifier, timeMicros: Long): Table =
    table(id, Pin.take(uri, _.put("time_us", timeMicros)), isPast = true)

  override def loadTable(id: Identifier, changes: JSet[TableWritePrivilege]): Table =
    table(id, Statement.pin(uri), isPast = false, isChanged = true)

  private def table(id: Identifier, pin: Pin, isPast: Boolean, isChanged: Boolean = false): Table = {
    val name = named(id)
    pin.source(name, Source.load(pin, name)) match {
      case Some(source) if isPast => new SiltstoneTable(source)
      case Some(source) => new WritableTable(source, target(name), isChanged)
      case None => (if (isPast) None else ChangesTable.of(pin, id))
        .orElse(MetadataTable.load(pin, name, isPast)).getOrElse(throw new NoSuchTableException(id))
    }
  }

  override def loadChangelog(
      id: Identifier, asked: ChangelogContext, options: CaseInsensitiveStringMap): Changelog =
    TableChanges.of(Statement.pin(uri), named(id), asked)
      .getOrElse(throw new NoSuchTableException(id))

  private def listed(namespace: Array[String]): JsonNode = {
    val head = Daemon.request("list").put("uri", uri)
    val levels = head.putArray("namespace")
    namespace.foreach(each => levels.add(each))
    Daemon.call(head)._1
  }
  private def texts(found: JsonNode): Array[String] = found.asScala.map(_.asText).toArray

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    val found = listed(namespace)
    if (!found.get("exists").asBoolean) throw new NoSuchNamespaceException(namespace)
    texts(found.get("tables")).map(Identifier.of(namespace, _))
  }
  override def listNamespaces(): Array[Array[String]] = listNamespaces(Array.empty[String])
  override def listNamespaces(namespace: Array[String]): Array[Array[String]] = {
    val found = listed(namespace)
    if (!found.get("exists").asBoolean) throw new NoSuchNamespaceException(namespace)
    texts(found.get("namespaces")).map(namespace :+ _)
  }
  override def namespaceExists(namespace: Array[String]): Boolean =
    listed(namespace).get("exists").asBoolean
  override def loadNamespaceMetadata(namespace: Array[String]): JMap[String, String] =
    if (namespaceExists(namespace)) new HashMap[String, String]()
    else throw new NoSuchNamespaceException(namespace)

  override def listProcedures(namespace: Array[String]): Array[Identifier] = Procedures.list(namespace)
  override def loadProcedure(id: Identifier): UnboundProcedure = new CatalogProcedure(uri, named(id))

  override def capabilities(): JSet[TableCatalogCapability] =
    EnumSet.of(TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT, TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE)

  private def named(id: Identifier): String = (id.namespace.toSeq :+ id.name).mkString(".")
  private def change(op: String, id: Identifier, more: ObjectNode => Unit = _ => ()): JsonNode =
    Definition.change(op, uri, named(id), more)
  private def setting(name: String, otherwise: String): String =
    SQLConf.get.getConfString(s"spark.sql.catalog.$catalog.$name", otherwise)
  private def target(table: String, creates: Option[Seq[String]] = None): Target =
    Target(uri, table, setting("insert", "insert"), setting("isolation", "snapshot"), None, creates)
  private def fresh(id: Identifier): Table = table(id, Pin.take(uri), isPast = false)

  override def createTable(id: Identifier, info: TableInfo): Table = {
    val key = keyOf(info)
    if (tableExists(id)) throw new TableAlreadyExistsException(id)
    Definition.create(uri, named(id), Defaults.of(info.columns, info.schema), key, replaces = false)
    fresh(id)
  }
  override def stageCreate(id: Identifier, info: TableInfo): StagedTable = {
    val made = staged(id, info)
    if (tableExists(id)) throw new TableAlreadyExistsException(id)
    made
  }
  override def stageReplace(id: Identifier, info: TableInfo): StagedTable = {
    if (!tableExists(id)) throw new CannotReplaceMissingTableException(id)
    staged(id, info, replaces = true)
  }
  override def stageCreateOrReplace(id: Identifier, info: TableInfo): StagedTable =
    staged(id, info, replaces = true)
  private def staged(id: Identifier, info: TableInfo, replaces: Boolean = false): StagedTable = {
    val key = keyOf(info, SparkSession.active.sessionState.conf.defaultDataSourceName)
    new NewTable(target(named(id), Some(key)), info, replaces)
  }

  /** The primary key of a new table, by its constraint or by the property primaryKey; `saveAsTable`
    * names the default source where its caller names none.
    */
  private def keyOf(info: TableInfo, unnamed: String = "siltstone"): Seq[String] = {
    info.columns.find(_.comment != null).foreach(refusedComment)
    if (info.partitions.nonEmpty) refused("PARTITIONED BY", "a table of a store has no partitions")
    val unknown = info.properties.keySet.asScala.diff(SiltstoneCatalog.properties)
    unknown.headOption.foreach(name => refused(s"the property $name", "a table has primaryKey alone"))
    Option(info.properties.get("provider")).filter(each => !Set("siltstone", unnamed)(each.toLowerCase))
      .foreach(name => refused(s"USING $name",
        s"the tables of catalog $catalog are siltstone's; a stream by toTable needs a table that is there"))
    val keys = Option(info.constraints).toSeq.flatten.map {
      case key: PrimaryKey => key.columns.map(_.fieldNames.mkString(".")).toSeq
      case other => refused(s"the constraint ${other.name}", "a table has a primary key alone")
    }
    val named = Option(info.properties.get("primaryKey")).map(_.split(",").map(_.trim).toSeq)
    if (keys.nonEmpty && named.exists(_ != keys.head)) {
      refused("second primary key", s"PRIMARY KEY says ${keys.head.mkString(", ")}, the property primaryKey another one")
    }
    keys.headOption.orElse(named).getOrElse(Nil)
  }

  private def refusedComment(column: Column) =
    refused(s"the comment of column ${column.name}", "describe columns by their metadata, in Python")

  override def alterTable(id: Identifier, changes: TableChange*): Table = {
    if (QueryPlanningTracker.get.isDefined) { // in an analysis, EXPLAIN's too
      refused("WITH SCHEMA EVOLUTION", s"add the columns that ${named(id)} lacks by ALTER TABLE first")
    }
    change("alter", id, head => {
      val list = head.putArray("changes")
      changes.foreach { each =>
        val (kind, name, to) = changed(id, each)
        list.addObject().put("kind", kind).put("name", name).put("to", to)
      }
    })
    fresh(id)
  }
  private def changed(id: Identifier, change: TableChange): (String, String, String) = change match {
    case add: TableChange.AddColumn if (add.isNullable || add.defaultValue != null) && add.position == null &&
        add.comment == null && add.fieldNames.length == 1 =>
      ("add", add.fieldNames.head,
        column(add.fieldNames, add.dataType, Option(add.defaultValue).map(_.getSql), add.isNullable))
    case add: TableChange.AddColumn =>
      refused(s"ADD COLUMN ${add.fieldNames.mkString(".")} with a position, a comment, NOT NULL without" +
        " a default, or in a struct", "a new column comes last, and has a value in the rows that exist")
    case rename: TableChange.RenameColumn if rename.fieldNames.length == 1 =>
      ("rename", rename.fieldNames.head, rename.newName)
    case delete: TableChange.DeleteColumn if delete.fieldNames.length == 1 =>
      ("drop", delete.fieldNames.head, "")
    case each: TableChange.UpdateColumnType if each.fieldNames.length == 1 =>
      ("type", each.fieldNames.head, column(each.fieldNames, each.newDataType, None, isNullable = true))
    case each: TableChange.UpdateColumnNullability if each.fieldNames.length == 1 =>
      ("nullable", each.fieldNames.head, each.nullable.toString)
    case each: TableChange.UpdateColumnDefaultValue if each.fieldNames.length == 1 =>
      val name = each.fieldNames.head
      val sql = Option(each.newCurrentDefault).flatMap(now => Option(now.getSql)).filter(_.nonEmpty)
      ("default", name, sql.fold("")(text => column(each.fieldNames, typeOf(id, name), Some(text), isNullable = true)))
    case other => refused(s"ALTER TABLE with ${other.getClass.getSimpleName}",
      "a column is added, renamed, altered or dropped")
  }
  private def column(names: Array[String], kind: DataType, default: Option[String], isNullable: Boolean): String =
    StructType(Seq(Defaults.field(names.head, kind, isNullable, default))).json
  private def typeOf(id: Identifier, column: String): DataType =
    loadTable(id).columns.find(_.name.equalsIgnoreCase(column)).map(_.dataType)
      .getOrElse(throw new IllegalArgumentException(s"there is no column $column"))

  override def dropTable(id: Identifier): Boolean = change("drop", id).get("found").asBoolean
  override def renameTable(from: Identifier, to: Identifier): Unit =
    change("rename", from, _.put("to", named(
      if (to.namespace.headOption.contains(catalog)) Identifier.of(to.namespace.tail, to.name) else to)))

  private def refused(what: String, instead: String): Nothing =
    throw new UnsupportedOperationException(s"catalog $catalog has no $what: $instead")
  private def noNamespaces(what: String) =
    refused(what, "a namespace is there while a table is in it; properties are Python's")
  override def createNamespace(namespace: Array[String], properties: JMap[String, String]): Unit =
    noNamespaces("CREATE NAMESPACE")
  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    noNamespaces("ALTER NAMESPACE")
  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    noNamespaces("DROP NAMESPACE")
}

object SiltstoneCatalog {
  private val properties = Set("provider", "owner", "primaryKey")
}

/** Statements that make, change and drop tables. */
object Definition {
  def change(op: String, uri: String, table: String, more: ObjectNode => Unit): JsonNode = {
    val head = Daemon.request(op).put("uri", uri).put("table", table)
      .put("application", Daemon.application)
    more(head)
    Daemon.change(head, Array.emptyByteArray, s"$op is done to $table")._1
  }
  def create(uri: String, table: String, schema: StructType, key: Seq[String], replaces: Boolean): Unit =
    change("create", uri, table, head => {
      head.put("columns", schema.json).put("replaces", replaces)
      val names = head.putArray("primary_key")
      key.foreach(each => names.add(each))
    })
}

/** A table at a pin, as Python describes it. */
final class Source(val pin: Pin, val name: String, val id: Long, val schema: StructType,
    val key: Seq[String], width: Long, widths: Map[String, Long], val properties: JMap[String, String]) {
  // Python looks up what is hidden, which a statement need not know that only writes the table.
  private lazy val measured =
    Daemon.call(Daemon.request("measure").put("token", pin.token).put("table", name))._1
  def rows: Long = measured.get("rows").asLong
  /** What a read is called. */
  def said: String = measured.get("said").asText
  /** How many bytes Spark should assume of so many rows, with these columns. */
  def bytes(columns: StructType, of: Long): Long =
    math.max(1L, of * (width + columns.fieldNames.map(widths.getOrElse(_, 0L)).sum))

  def unpinned: Source =
    new Source(pin.released, name, id, schema, key, width, widths, properties)

  override def equals(other: Any): Boolean = other match {
    case that: Source => id == that.id && pin == that.pin
    case _ => false
  }
  override def hashCode(): Int = (pin, id).##
}

object Source {
  /** Record a read, which later overwrites by this application must know. */
  def tell(pin: Pin, table: String): Unit = Daemon.call(
    Daemon.request("tell").put("token", pin.token).put("table", table)
      .put("application", Daemon.application))

  /** Describe a table; None: there is none of that name. */
  def load(pin: Pin, name: String): Option[Source] = {
    val found = Daemon.call(Daemon.request("load").put("token", pin.token).put("table", name))._1
    if (found.has("missing")) None
    else {
      val schema = DataType.fromJson(found.get("schema").asText).asInstanceOf[StructType]
      val widths = schema.fieldNames.zip(found.get("widths").asScala.map(_.asLong)).toMap
      val properties = new HashMap[String, String]()
      found.get("properties").properties.asScala.foreach(e => properties.put(e.getKey, e.getValue.asText))
      Some(new Source(pin, name, found.get("id").asLong, schema,
        found.get("key").asScala.map(_.asText).toSeq, found.get("width").asLong, widths, Collections.unmodifiableMap(properties)))
    }
  }
}

/** A table of a statement. It has no `version()`: with one, Spark loads the tables of a frame again
  * before it runs, outside of the analysis, and so each at another seq.
  */
class SiltstoneTable(found: Source) extends SupportsRead {
  @volatile private var known = found
  def source: Source = known
  /** Let go of the pin: a stream may write a table for months, and reads nothing of it. */
  def unpin(): Unit = known = known.unpinned
  override def name(): String = source.name
  override def toString: String = name() // Spark's sentences have it
  override def id(): String = s"${source.pin.store}#${source.id}"
  override def columns(): Array[Column] = CatalogV2Util.structTypeToV2Columns(source.schema)
  override def properties(): JMap[String, String] = source.properties
  override def capabilities(): JSet[TableCapability] = EnumSet.of(TableCapability.BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new TableScanBuilder(source, ScanOptions(options))
}

/** A table of the newest seq, which statements write; one that `isChanged` has the options of the
  * write, also where Spark scans it to know which rows to insert.
  */
class WritableTable(found: Source, target: Target, isChanged: Boolean) extends SiltstoneTable(found)
    with SupportsWrite with SupportsDeleteV2 with TruncatableTable with SupportsRowLevelOperations {
  private val run = new SinkRun(() => unpin()) // of a stream, whose batches all have this table
  private def here = target.copy(source = Some(source))
  override def capabilities(): JSet[TableCapability] = EnumSet.of(
    TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.TRUNCATE,
    TableCapability.OVERWRITE_BY_FILTER, TableCapability.AUTOMATIC_SCHEMA_EVOLUTION,
    TableCapability.STREAMING_WRITE, TableCapability.MICRO_BATCH_READ)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new TableWriteBuilder(here, info, run)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    if (isChanged) new TableScanBuilder(source, ScanOptions(None, None)) else super.newScanBuilder(options)
  // Spark tells `deleteWhere` none of them, so a DELETE that has some goes by key.
  private var hasOptions = false
  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder = {
    hasOptions = !info.options.isEmpty
    () => new KeyedOperation(here, source, info)
  }

  override def canDeleteWhere(predicates: Array[Predicate]): Boolean = !hasOptions && (
    Predicates.areAll(predicates) || Predicates.answered(source, predicates).forall(_.isDefined))
  override def deleteWhere(predicates: Array[Predicate]): Unit =
    delete(if (Predicates.areAll(predicates)) None else Some(Predicates.whole(source, predicates)))
  override def truncateTable(): Boolean = {
    delete(None)
    true
  }
  private def delete(filter: Option[String]): Unit = {
    val head = Daemon.request("delete").put("uri", source.pin.uri).put("table", source.name)
      .put("id", source.id).put("application", Daemon.application)
    filter.fold[Any](head.putNull("filter"))(head.put("filter", _))
    Daemon.change(head, Array.emptyByteArray, s"the rows are gone from ${source.name}")
  }
}
