"""Examples: pipelines on Spark, searches, and TPC-H as one pipeline (`siltstone demo --spark`)."""
