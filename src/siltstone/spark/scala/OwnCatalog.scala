package org.apache.spark.sql.siltstone

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.CatalogV2Util
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}

/** Refuses a table USING siltstone in Spark's own catalog, which would make an entry without rows
  * or place, and ask nobody. A strategy, since a running session takes one, too.
  */
object OwnCatalog extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    plan match {
      case made: CreateTable => refuse(made.name, made.tableSpec)
      case made: CreateTableAsSelect => refuse(made.name, made.tableSpec)
      case made: ReplaceTable => refuse(made.name, made.tableSpec)
      case made: ReplaceTableAsSelect => refuse(made.name, made.tableSpec)
      case _ => ()
    }
    Nil // others plan it
  }

  private def refuse(name: LogicalPlan, spec: TableSpecBase): Unit = name match {
    case ResolvedIdentifier(catalog, id)
        if CatalogV2Util.isSessionCatalog(catalog) && spec.provider.exists(_.equalsIgnoreCase("siltstone")) =>
      throw new SiltstoneException("RequestError",
        s"Spark's own catalog keeps no table of a store: create '${id.name}' in a catalog of the store, as" +
          s" shop.${id.name} with spark.sql.catalog.shop, or read one by CREATE TEMPORARY VIEW .. USING siltstone")
    case _ => ()
  }

  /** Let a running session have it, which began without the extensions of this jar. */
  def join(session: SparkSession): Unit = {
    val known = session.experimental.extraStrategies
    if (!known.contains(this)) session.experimental.extraStrategies = known :+ this
  }
}

/** What a session begins with, as `spark.sql.extensions`. */
class SiltstoneExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPlannerStrategy(_ => OwnCatalog)
}
