package fidelity

import "fmt"

// Schemas: which ones the broker refuses. For the broker, two schemas of one type are the same only if their bytes are
// equal.
var schemaScenarios = []scenario{
	{name: "schemas", run: func(s *script) {
		a := s.ready()
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, s.topic))
		a.ask(fmt.Sprintf(`getOrCreateSchema { topic: %q schema { %s } }`, s.topic, schemaString))
		a.ask(fmt.Sprintf(`getOrCreateSchema { topic: %q schema { %s } }`, s.topic, schemaString))
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, s.topic))
		a.ask(fmt.Sprintf(`getSchema { topic: %q schema_version: "\000\000\000\000\000\000\000\000" }`, s.topic))
		a.ask(fmt.Sprintf(`getSchema { topic: %q schema_version: "\000\000\000\000\000\000\000\007" }`, s.topic))
		a.newProducer(2, schema(schemaString))
		a.subscribe(1, "Shared", schema(schemaString))
	}},
	{name: "schema-of-a-producer", run: func(s *script) {
		a := s.dial("a")
		a.newProducer(1, schema(schemaString))
		a.newProducer(2, schema(schemaString))
		a.newProducer(3, schema(schemaInt32))
		a.newProducer(4, schema(schemaJSON))
		a.newProducer(5) // bytes
		a.ask(fmt.Sprintf(`getOrCreateSchema { topic: %q schema { %s } }`, s.topic, schemaInt32))
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, s.topic))
	}},
	{name: "schema-of-a-consumer", run: func(s *script) {
		a := s.dial("a")
		a.subscribe(1, "Shared", schema(schemaString))
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, s.topic))
		a.subscribe(2, "Shared", schema(schemaString))
		a.subscribe(3, "Shared", schema(schemaInt32))
		a.subscribe(4, "Shared", schema(schemaJSON))
		a.subscribe(5, "Shared") // bytes
		a.newProducer(1, schema(schemaInt32))
		a.newProducer(2, schema(schemaString))
	}},
	{name: "schema-of-a-consumer-where-there-are-bytes", run: func(s *script) {
		a := s.ready()
		a.publish("bytes")
		a.closeProducer(1)
		a.subscribe(1, "Shared", schema(schemaString))
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, s.topic))
		s.callAdmin("GET", "subscriptions", "")
	}},
	{name: "schema-of-a-consumer-beside-a-producer-of-bytes", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared", schema(schemaString))
		a.closeProducer(1)
		a.subscribe(1, "Shared", schema(schemaString))
	}},
	{name: "schema-of-a-consumer-beside-one-of-bytes", run: func(s *script) {
		a := s.dial("a")
		a.subscribe(1, "Shared")
		a.subscribe(2, "Shared", schema(schemaString))
		a.closeConsumer(1)
		a.subscribe(2, "Shared", schema(schemaString))
	}},
	{name: "schema-of-a-producer-where-there-are-bytes", run: func(s *script) {
		a := s.ready()
		a.publish("bytes")
		a.newProducer(2, schema(schemaString))
		a.subscribe(1, "Shared", schema(schemaString))
	}},
	{name: "schema-of-a-json-topic", run: func(s *script) {
		a := s.dial("a")
		a.newProducer(1, schema(schemaJSON))
		a.newProducer(2, schema(schemaJSON2)) // one more field, with a default
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, s.topic))
		a.subscribe(1, "Shared", schema(schemaJSON))
	}},
	{name: "schemas-of-partitions", run: func(s *script) {
		s.callAdmin("PUT", "partitions", "2")
		a := s.dial("a")
		topic := s.topic
		s.topic = topic + "-partition-0"
		a.newProducer(1, schema(schemaString))
		s.topic = topic + "-partition-1"
		a.newProducer(2, schema(schemaInt32))
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, topic))
		s.topic = topic
	}},
	{name: "schema-none", run: func(s *script) {
		a := s.dial("a")
		a.newProducer(1, schema(`name: "n" type: None schema_data: ""`))
		a.subscribe(1, "Shared", schema(`name: "n" type: None schema_data: ""`))
		a.ask(fmt.Sprintf(`getSchema { topic: %q }`, s.topic))
		a.publish("0")
		a.subscribe(2, "Shared", schema(`name: "n" type: None schema_data: ""`))
	}},
}

const (
	schemaString = `name: "s" type: String schema_data: ""`
	schemaInt32  = `name: "i" type: Int32 schema_data: ""`
	schemaJSON   = `name: "j" type: Json schema_data: "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}"`
	schemaJSON2  = `name: "j" type: Json schema_data: "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"},{\"name\":\"b\",\"type\":\"int\",\"default\":0}]}"`
)

func schema(text string) string { return "schema { " + text + " }" }
