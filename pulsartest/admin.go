package pulsartest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// version is the version of Pulsar that this broker behaves like.
const version = "4.0.7"

// adminHandler serves the part of the admin REST API that tests of clients need.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := f(w, r); err != nil {
				reply(w, statusOf(err), map[string]string{"reason": err.Error()})
			}
		})
	}
	const topic = "/admin/v2/{domain}/{tenant}/{ns}/{topic}"
	s.topicHandlers(topic, handle)
	s.subscriptionHandlers(topic, handle)
	s.policyHandlers(topic, handle)
	s.namespaceHandlers(handle)
	s.schemaHandlers(handle)
	handle("GET /admin/v2/brokers/health", func(w http.ResponseWriter, _ *http.Request) error {
		_, err := w.Write([]byte("ok"))
		return err
	})
	handle("GET /admin/v2/brokers/version", func(w http.ResponseWriter, _ *http.Request) error {
		_, err := w.Write([]byte(version))
		return err
	})
	handle("GET /admin/v2/clusters", func(w http.ResponseWriter, _ *http.Request) error {
		reply(w, http.StatusOK, []string{"standalone"})
		return nil
	})
	// For clients that were given an http URL.
	handle("GET /lookup/v2/topic/{domain}/{tenant}/{ns}/{topic}", func(w http.ResponseWriter, _ *http.Request) error {
		reply(w, http.StatusOK, map[string]string{"brokerUrl": s.URL(), "httpUrl": s.AdminURL(), "nativeUrl": s.URL()})
		return nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.EscapedPath(); strings.Contains(path, "+") { // Pulsar reads a plus as a blank
			r.URL.RawPath = strings.ReplaceAll(path, "+", "%20")
			r.URL.Path, _ = url.PathUnescape(r.URL.RawPath) // net/http has checked the path
		}
		mux.ServeHTTP(w, r)
	})
}

// A handler runs under the server's lock. If it returns an error, adminHandler answers the request with this error.
type handler func(w http.ResponseWriter, r *http.Request) error

type handlers func(pattern string, f handler)

func reply(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func done(w http.ResponseWriter) error {
	reply(w, http.StatusNoContent, nil)
	return nil
}

// refusal is an error of the admin API.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

func statusOf(err error) int {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.status
	}
	if codeOf(err) == wire.TopicNotFound {
		return http.StatusNotFound
	}
	return http.StatusPreconditionFailed
}

// named returns the topic name in a request's path, or an error if the name's namespace does not exist.
func (s *Server) named(r *http.Request) (topicName, error) {
	n, err := parseTopic(r.PathValue("domain") + "://" + r.PathValue("tenant") + "/" + r.PathValue("ns") + "/" +
		r.PathValue("topic"))
	if err != nil {
		return n, refuse(http.StatusPreconditionFailed, "%v", err)
	}
	if !s.namespaces[n.namespace] {
		return n, refuse(http.StatusNotFound, "Namespace %s does not exist", n.namespace)
	}
	return n, nil
}

// existing returns the topic name in a request's path, and the topic of this name or its partitions. It returns an
// error if the topic does not exist.
func (s *Server) existing(r *http.Request) (topicName, []*topic, error) {
	n, err := s.named(r)
	if err != nil {
		return n, nil, err
	}
	if n.partition >= 0 && s.topics[n] == nil {
		_, _ = s.topic(n.String(), false) // creates a partition that no client has named yet
	}
	topics := s.matching(n.String())
	if len(topics) == 0 {
		return n, nil, refuse(http.StatusNotFound, "Topic %s not found", n)
	}
	return n, topics, nil
}
