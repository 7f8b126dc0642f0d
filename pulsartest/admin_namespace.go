package pulsartest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// namespaceHandlers serves what is not about one topic, and the lookups of
// clients that were given an http URL.
func (s *Server) namespaceHandlers(handle handlers) {
	const namespace = "/admin/v2/namespaces/{tenant}/{ns}"
	handle("PUT "+namespace, s.adminCreateNamespace)
	handle("DELETE "+namespace, s.adminDeleteNamespace)
	handle("GET /admin/v2/namespaces/{tenant}", s.adminNamespaces)
	handle("GET "+namespace+"/topics", s.adminNamespaceTopics)
	handle("GET /admin/v2/clusters", func(w http.ResponseWriter, _ *http.Request) error {
		reply(w, http.StatusOK, []string{"standalone"})
		return nil
	})
	lookup := func(w http.ResponseWriter, _ *http.Request) error {
		reply(w, http.StatusOK, map[string]string{"brokerUrl": s.URL(), "httpUrl": s.AdminURL(), "nativeUrl": s.URL()})
		return nil
	}
	handle("GET /lookup/v2/topic/{domain}/{tenant}/{ns}/{topic}", lookup)
	const schema = "/admin/v2/schemas/{tenant}/{ns}/{topic}/schema"
	handle("GET "+schema, s.adminSchema)
	handle("GET "+schema+"/{version}", s.adminSchema)
	handle("DELETE "+schema, func(w http.ResponseWriter, r *http.Request) error {
		n, err := parseTopic(r.PathValue("tenant") + "/" + r.PathValue("ns") + "/" + r.PathValue("topic"))
		if err != nil {
			return failf(wire.InvalidTopicName, "%v", err)
		}
		delete(s.schemas, n.base())
		reply(w, http.StatusOK, map[string]int{"version": 0})
		return nil
	})
}

func (s *Server) adminCreateNamespace(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant") + "/" + r.PathValue("ns")
	if s.namespaces[name] {
		return failf(wire.ProducerBusy, "Namespace already exists")
	}
	s.namespaces[name] = true
	reply(w, http.StatusNoContent, nil)
	return nil
}

func (s *Server) adminDeleteNamespace(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant") + "/" + r.PathValue("ns")
	if !s.namespaces[name] {
		return failf(wire.TopicNotFound, "Namespace does not exist")
	}
	if len(s.topicsOf(name, wire.AllTopics)) > 0 {
		return failf(wire.ProducerBusy, "Cannot delete non empty namespace")
	}
	delete(s.namespaces, name)
	reply(w, http.StatusNoContent, nil)
	return nil
}

func (s *Server) adminNamespaces(w http.ResponseWriter, r *http.Request) error {
	names := slices.Sorted(maps.Keys(s.namespaces))
	names = slices.DeleteFunc(names, func(n string) bool {
		tenant := r.PathValue("tenant") + "/"
		return len(n) < len(tenant) || n[:len(tenant)] != tenant
	})
	reply(w, http.StatusOK, names)
	return nil
}

func (s *Server) adminNamespaceTopics(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant") + "/" + r.PathValue("ns")
	if !s.namespaces[name] {
		return failf(wire.TopicNotFound, "Namespace does not exist")
	}
	mode := wire.Persistent
	switch r.URL.Query().Get("mode") {
	case "NON_PERSISTENT":
		mode = wire.NonPersistent
	case "ALL":
		mode = wire.AllTopics
	}
	reply(w, http.StatusOK, s.topicsOf(name, mode))
	return nil
}

func (s *Server) adminSchema(w http.ResponseWriter, r *http.Request) error {
	n, err := parseTopic(r.PathValue("tenant") + "/" + r.PathValue("ns") + "/" + r.PathValue("topic"))
	if err != nil {
		return failf(wire.InvalidTopicName, "%v", err)
	}
	var version []byte
	if v := r.PathValue("version"); v != "" {
		var i uint32
		if json.Unmarshal([]byte(v), &i) == nil {
			version = schemaVersion(int(i))
		}
	}
	schema, i := s.schemaAt(n, version)
	if schema == nil {
		return failf(wire.TopicNotFound, "Schema not found")
	}
	props := properties(schema.Properties)
	reply(w, http.StatusOK, map[string]any{"version": i, "type": schema.Type.String(), "timestamp": 0,
		"data": string(schema.Data), "properties": props})
	return nil
}
