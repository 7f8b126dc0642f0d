// Package ui serves pages about redelivery: the backlog of each subscription, the messages that wait and why, dead
// letters by cause with replay and purge, the checks of package doctor, and the schedule of a policy.
//
//	pages, err := ui.New(ui.Options{Client: client, Admin: ui.Admin{URL: "http://broker:8080"}})
//	...
//	defer pages.Close()
//	http.Handle("/debug/redelivery/", pages)
//
// The pattern must end with a slash. The pages show topics, keys and payloads: serve them where only operators have
// access, or set Options.Token. Command redelivery ui serves the same pages. They work without JavaScript; with it,
// open pages follow changes.
package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Admin is a broker's admin REST API.
type Admin struct {
	URL string // such as http://localhost:8080
	// Client makes the requests, with authentication and TLS if the API needs them. Default: http.DefaultClient.
	Client *http.Client
}

// Options configures a Handler.
type Options struct {
	// Client reads and replays dead letters, and reads logs of attempts. The caller closes it after the Handler.
	// Required.
	Client pulsar.Client
	// Admin is the broker's admin API. Its URL is required.
	Admin Admin
	// Topics are the topics to show, with their retry and dead letter topics. Default: the topics of Services, or
	// without Services all topics of Namespace.
	Topics []string
	// Namespace is the namespace whose topics are shown if no topics are given. Default: public/default.
	Namespace string
	// Subscription is the only subscription to show of each topic. Default: all.
	Subscription string
	// Services are consumers and workers of this process. The pages also show their counters and options. Default:
	// none.
	Services []Service
	// Setup returns the policies, the worker and the load of a subscription, for the doctor's checks. The Handler
	// adds the admin API, the client and the names. Default: the options of Services, if any.
	Setup func(topic, subscription string) doctor.Setup
	// Config has policies to choose from on the page Policies. Default: none.
	Config *config.Config

	// AllowChanges lets pages replay, purge, forget and redeliver. Default: false; no page changes anything.
	AllowChanges bool
	// HidePayloads leaves out payloads and exports. Default: false.
	HidePayloads bool
	// Token is a password that each browser has to send once. Default: none.
	Token string
	// Hosts are host names, without a port, by which browsers may reach the pages, besides localhost and IP addresses.
	// Other names are refused, since another site could make its own name resolve to this address. Default: none.
	Hosts []string
	// ExportDir is the directory to which a purge or an edit exports the original letters. Default: none; then no
	// letters can be purged.
	ExportDir string
	// Encryption and Decryption are the keys of encrypted letters, as in package deadletter. Default: none.
	Encryption *pulsar.ProducerEncryptionInfo
	Decryption *pulsar.MessageDecryptionInfo
	// Logger gets a line for each change that a page makes. Default: slog.Default().
	Logger *slog.Logger
}

// Service is a consumer of this process, and its worker, which may be nil.
type Service struct {
	Consumer *redelivery.Consumer
	Worker   *worker.Worker
}

// Handler serves the pages. It is safe for concurrent use. Close ends its replays and its goroutines.
type Handler struct {
	o        Options
	api      admin.API
	log      *slog.Logger
	guard    guard
	overview overview
	dead     letterIndexes
	plans    plans
	jobs     jobs
	doctor   examinations
	logs     attemptLogs
	changes  atomic.Uint64 // grows when a page may have changed

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed, and tasks.Go
	closed bool
	tasks  sync.WaitGroup
}

// New returns a Handler. It does not connect: an error says which option is wrong.
func New(o Options) (*Handler, error) {
	if o.Client == nil {
		return nil, errors.New("ui: Options.Client is nil")
	}
	if want := admin.WantURL(o.Admin.URL); want != "" {
		return nil, fmt.Errorf("ui: Options.Admin.URL is %q, want %s", o.Admin.URL, want)
	}
	for _, topic := range o.Topics {
		if want := topicname.Want(topic); want != "" {
			return nil, fmt.Errorf("ui: a topic of Options.Topics is %q, want %s", topic, want)
		}
	}
	if o.Namespace == "" {
		o.Namespace = "public/default"
	}
	if topicname.Want(o.Namespace+"/any") != "" {
		return nil, fmt.Errorf("ui: Options.Namespace is %q, want tenant/namespace", o.Namespace)
	}
	for _, s := range o.Services {
		if s.Consumer == nil {
			return nil, errors.New("ui: a Consumer of Options.Services is nil")
		}
	}
	if o.ExportDir != "" {
		if info, err := os.Stat(o.ExportDir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("ui: Options.ExportDir is %q, want a directory", o.ExportDir)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	h := &Handler{o: o, api: admin.API(o.Admin), log: o.Logger, guard: newGuard(o),
		doctor: examinations{room: make(chan struct{}, examiners)}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, nil
}

// Close ends replays and other tasks, and waits for them. To continue a replay that Close has ended, begin it again
// with the same choice, on a page or with redelivery dlq.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.tasks.Wait()
}

// start runs a task that Close waits for. It reports whether the Handler is open.
func (h *Handler) start(task func(context.Context)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.tasks.Go(func() { task(h.ctx) })
	return true
}

// changed makes open pages load again.
func (h *Handler) changed() { h.changes.Add(1) }
