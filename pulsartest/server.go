package pulsartest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// A Server is a Pulsar broker inside this process. It is safe for concurrent use. A hook ([Server.SetHook])
// may call its methods, except Close.
//
// Methods take a topic by its short name ("orders") or its full one ("persistent://public/default/orders"). The name of
// a partitioned topic means all its partitions.
type Server struct {
	settings
	listeners
	began time.Time // ticks of delayed delivery are counted from this time
	tasks sync.WaitGroup

	// mu guards the fields from closed to clock, all topics, subscriptions, producers and consumers, and a part of each
	// session (see session.go). A goroutine that holds mu does not wait and calls no hook.
	mu       sync.Mutex
	closed   bool
	sessions map[*session]struct{}
	catalog
	nextLedger uint64
	nextName   uint64
	faults     faults
	rules      rules
	clock      clock

	hooked   atomic.Pointer[func(Command) Verdict]
	hasRules atomic.Bool
}

// listeners accept the clients' connections.
type listeners struct {
	broker, admin net.Listener
	http          *http.Server
}

// catalog has the topics by name. Server.mu guards it.
type catalog struct {
	topics     map[topicName]*topic
	partitions map[topicName]int
	tenants    map[string]bool
	namespaces map[string]bool
	schemas    map[topicName][]wire.Schema // by base name
	limits     map[topicName]limits        // by base name
}

// NewServer starts a server, and closes it when the test ends. Without WithLogger, the server logs warnings to the
// test. NewServer fails the test if the server cannot listen.
func NewServer(t testing.TB, opts ...Option) *Server {
	t.Helper()
	warnings := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
	s, err := Start(append([]Option{WithLogger(slog.New(warnings))}, opts...)...)
	if err != nil {
		t.Fatalf("pulsartest: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// Start starts a server for a program. The program must Close it. Start returns an error if the server cannot listen.
func Start(opts ...Option) (*Server, error) {
	s := &Server{
		settings: defaults(),
		began:    time.Now(),
		sessions: map[*session]struct{}{},
		catalog: catalog{
			topics:     map[topicName]*topic{},
			partitions: map[topicName]int{},
			tenants:    map[string]bool{"public": true, "pulsar": true},
			namespaces: map[string]bool{"public/default": true, "pulsar/system": true},
			schemas:    map[topicName][]wire.Schema{},
			limits:     map[topicName]limits{},
		},
		nextLedger: 1,
		clock:      clock{timers: map[*timer]struct{}{}},
	}
	for _, opt := range opts {
		opt(&s.settings)
	}
	var err error
	s.broker, err = net.Listen("tcp", s.brokerAddr)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	s.admin, err = net.Listen("tcp", s.adminAddr)
	if err != nil {
		_ = s.broker.Close()
		return nil, fmt.Errorf("admin: %w", err)
	}
	s.http = &http.Server{
		Handler:           s.adminHandler(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
	}
	s.tasks.Add(2)
	go s.accept()
	go func() {
		defer s.tasks.Done()
		_ = s.http.Serve(s.admin)
	}()
	return s, nil
}

// URL returns the address that a client connects to: pulsar://127.0.0.1:port.
func (s *Server) URL() string { return "pulsar://" + s.broker.Addr().String() }

// AdminURL returns the base URL of the admin REST API: http://127.0.0.1:port.
func (s *Server) AdminURL() string { return "http://" + s.admin.Addr().String() }

// Close drops all connections. It returns when no goroutine of the server is left. Closing again does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.sessions {
		c.close()
	}
	for t := range s.clock.timers {
		t.stop()
	}
	s.mu.Unlock()
	_ = s.broker.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	s.tasks.Wait()
}

func (s *Server) accept() {
	defer s.tasks.Done()
	for {
		conn, err := s.broker.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.logger.Warn("pulsartest: accept", "err", err)
				time.Sleep(5 * time.Millisecond) // for example, there are no file descriptors left
				continue
			}
			return
		}
		s.serve(conn)
	}
}

func (s *Server) serve(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.faults.refuse {
		_ = conn.Close()
		return
	}
	c := newSession(s, conn)
	s.sessions[c] = struct{}{}
	s.tasks.Add(2)
	go c.read()
	go c.write()
}
