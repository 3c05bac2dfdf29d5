package org.apache.spark.sql.siltstone

import org.apache.spark.SparkException
import org.apache.spark.sql.AnalysisException

/** An error of the store: its sentence, and the name of its class in Python. */
class SiltstoneException(val kind: String, sentence: String, cause: Option[Throwable] = None)
    extends AnalysisException(
      sentence, None, None, cause, Some(SiltstoneException.condition), Map.empty[String, String],
      Array.empty, None, None) {
  override def getMessage: String = sentence
}

object SiltstoneException {
  // A script of SQL asks each error for one, and for its SQLSTATE, by which handlers know it.
  private val condition = "DATA_SOURCE_EXTERNAL_ERROR"

  def unavailable(sentence: String, cause: Throwable = null): SiltstoneException =
    new SiltstoneException("UnavailableError", sentence, Option(cause))

  /** Let a task fail with an exception that the driver knows: it may have no classes of this jar. */
  def inTask[T](body: => T): T =
    try body
    catch {
      case e: SiltstoneException =>
        val known = new SparkException(e.getMessage)
        known.setStackTrace(e.getStackTrace)
        throw known
    }

  /** The Python process ended in the middle of an answer: another one may be asked again. */
  class Gone(val running: Daemon.Running, cause: Throwable)
      extends SiltstoneException(
        "UnavailableError",
        "the Python process of siltstone ended while it answered; another one answers from now on",
        Option(cause))
}
