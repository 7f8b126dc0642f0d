package admin

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

// Schema is one version of a topic's schema, from the schema registry.
type Schema struct {
	Type       string            `json:"type"`       // AVRO, JSON, STRING …
	Data       string            `json:"data"`       // the definition, if the schema has one
	Properties map[string]string `json:"properties"` // of the schema, as the producer set them
}

// Schemas finds the versions of a topic's schema, and asks the API once for each version. Topic is the topic's full
// name. Schemas is safe for concurrent use.
type Schemas struct {
	API   API
	Topic string

	mu    sync.Mutex
	known map[string]*Schema
}

// Find returns a version of the schema, or nil if version is "", there is no such version or the API has no URL.
func (s *Schemas) Find(ctx context.Context, version string) (*Schema, error) {
	if version == "" || s.API.URL == "" {
		return nil, nil
	}
	s.mu.Lock()
	known, ok := s.known[version]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	name := strings.TrimPrefix(Topic(s.Topic), "persistent/")
	schema := &Schema{}
	err := s.API.Call(ctx, http.MethodGet, "schemas/"+name+"/schema/"+version, nil, schema)
	if NotFound(err) {
		schema, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]*Schema{}
	}
	s.known[version] = schema
	return schema, nil
}
