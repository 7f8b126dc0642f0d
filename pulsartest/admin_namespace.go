package pulsartest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// namespaceHandlers serves tenants and namespaces.
func (s *Server) namespaceHandlers(handle handlers) {
	handle("GET /admin/v2/tenants", func(w http.ResponseWriter, _ *http.Request) error {
		reply(w, http.StatusOK, slices.Sorted(maps.Keys(s.tenants)))
		return nil
	})
	handle("PUT /admin/v2/tenants/{tenant}", s.adminCreateTenant)
	handle("DELETE /admin/v2/tenants/{tenant}", s.adminDeleteTenant)
	const namespace = "/admin/v2/namespaces/{tenant}/{ns}"
	handle("PUT "+namespace, s.adminCreateNamespace)
	handle("DELETE "+namespace, s.adminDeleteNamespace)
	handle("GET /admin/v2/namespaces/{tenant}", s.adminNamespaces)
	handle("GET "+namespace+"/topics", s.adminNamespaceTopics)
}

// CreateNamespace creates a namespace ("tenant/namespace") and its tenant, unless they exist. A new Server has only
// public/default and pulsar/system. Topics of other namespaces are not found.
func (s *Server) CreateNamespace(name string) error {
	tenant, rest, ok := strings.Cut(name, "/")
	if !ok || tenant == "" || rest == "" || strings.Contains(rest, "/") {
		return failf(wire.InvalidTopicName, "pulsartest: namespace %q: want tenant/namespace", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenants[tenant], s.namespaces[name] = true, true
	return nil
}

func (s *Server) adminCreateTenant(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant")
	if s.tenants[name] {
		return refuse(http.StatusConflict, "Tenant already exists")
	}
	s.tenants[name] = true
	return done(w)
}

func (s *Server) adminDeleteTenant(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant")
	if !s.tenants[name] {
		return refuse(http.StatusNotFound, "Tenant does not exist")
	}
	if len(s.namespacesOf(name)) > 0 {
		return refuse(http.StatusConflict, "The tenant still has active namespaces")
	}
	delete(s.tenants, name)
	return done(w)
}

// namespacesOf lists a tenant's namespaces.
func (s *Server) namespacesOf(tenant string) []string {
	names := slices.Sorted(maps.Keys(s.namespaces))
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, tenant+"/") })
}

func (s *Server) adminCreateNamespace(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant") + "/" + r.PathValue("ns")
	if !s.tenants[r.PathValue("tenant")] {
		return refuse(http.StatusNotFound, "Tenant does not exist")
	}
	if s.namespaces[name] {
		return refuse(http.StatusConflict, "Namespace already exists")
	}
	s.namespaces[name] = true
	return done(w)
}

func (s *Server) adminDeleteNamespace(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant") + "/" + r.PathValue("ns")
	if !s.namespaces[name] {
		return refuse(http.StatusNotFound, "Namespace does not exist")
	}
	if len(s.topicsOf(name, wire.AllTopics)) > 0 {
		return refuse(http.StatusConflict, "Cannot delete non empty namespace")
	}
	delete(s.namespaces, name)
	return done(w)
}

func (s *Server) adminNamespaces(w http.ResponseWriter, r *http.Request) error {
	if !s.tenants[r.PathValue("tenant")] {
		return refuse(http.StatusNotFound, "Tenant does not exist")
	}
	reply(w, http.StatusOK, s.namespacesOf(r.PathValue("tenant")))
	return nil
}

func (s *Server) adminNamespaceTopics(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant") + "/" + r.PathValue("ns")
	if !s.namespaces[name] {
		return refuse(http.StatusNotFound, "Namespace does not exist")
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
		return refuse(http.StatusPreconditionFailed, "%v", err)
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
		return refuse(http.StatusNotFound, "Schema not found")
	}
	props := properties(schema.Properties)
	reply(w, http.StatusOK, map[string]any{"version": i, "type": schema.Type.String(), "timestamp": 0,
		"data": string(schema.Data), "properties": props})
	return nil
}
