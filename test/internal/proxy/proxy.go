// Package proxy breaks the connections between clients and a broker, for tests.
package proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Proxy passes data between clients and the broker. Clients look topics up by HTTP. In the answers the Proxy replaces
// the broker's address with its own, so the broker needs no special setting. Many goroutines may use a Proxy.
type Proxy struct {
	URL    string // for pulsar.ClientOptions
	target string
	tcp    net.Listener
	web    *http.Server

	mu    sync.Mutex
	links map[*link]bool
	gate  chan struct{} // closed while data may pass
	delay time.Duration // of every piece of data
	rate  int           // bytes a second; 0 for no limit
	away  string        // the topic that cannot be looked up
}

type link struct {
	client, broker net.Conn
	swallows       bool
}

// New starts a Proxy for the broker and its admin API.
func New(brokerURL, adminURL string) (*Proxy, error) {
	p := &Proxy{target: strings.TrimPrefix(brokerURL, "pulsar://"), links: map[*link]bool{}, gate: make(chan struct{})}
	close(p.gate)
	var err error
	if p.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	admin, err := url.Parse(adminURL)
	if err != nil {
		return nil, err
	}
	p.URL = "http://" + web.Addr().String()
	lookups := httputil.NewSingleHostReverseProxy(admin)
	direct := lookups.Director
	lookups.Director = func(req *http.Request) {
		direct(req)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.away != "" && strings.HasSuffix(req.URL.Path, p.away) {
			req.URL.Host = "" // makes the lookup fail
		}
		req.Header.Del("Accept-Encoding") // so that the Proxy can read the answer
	}
	lookups.ModifyResponse = p.redirect
	lookups.ErrorHandler = func(w http.ResponseWriter, _ *http.Request,
		_ error) {
		w.WriteHeader(http.StatusBadGateway)
	}
	p.web = &http.Server{Handler: lookups, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.web.Serve(web) }()
	go p.accept()
	return p, nil
}

func (p *Proxy) redirect(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	body = bytes.ReplaceAll(body, []byte(p.target), []byte(p.tcp.Addr().String()))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.tcp.Accept()
		if err != nil {
			return
		}
		go func() {
			broker, err := net.Dial("tcp", p.target)
			if err != nil {
				client.Close()
				return
			}
			l := &link{client: client, broker: broker}
			p.mu.Lock()
			p.links[l] = true
			p.mu.Unlock()
			go p.pass(l, client, broker)
			p.pass(l, broker, client)
		}()
	}
}

// pass copies data from one side to the other, until one side is closed.
func (p *Proxy) pass(l *link, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		p.mu.Lock()
		gate, delay, swallows := p.gate, p.delay, l.swallows
		if p.rate > 0 {
			delay += time.Duration(n) * time.Second / time.Duration(p.rate)
		}
		p.mu.Unlock()
		if swallows {
			continue
		}
		time.Sleep(delay)
		<-gate
		if _, err := to.Write(buf[:n]); err != nil {
			break
		}
	}
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.client.Close()
		l.broker.Close()
	}
}

// HalfOpen makes all connections swallow the data sent to them, as if the other side had vanished without closing them.
func (p *Proxy) HalfOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.swallows = true
	}
}

// Stall holds all data back for d.
func (p *Proxy) Stall(ctx context.Context, d time.Duration) {
	gate := make(chan struct{})
	p.mu.Lock()
	p.gate = gate
	p.mu.Unlock()
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	close(gate)
}

// Slow delays every piece of data and limits each direction of each connection to rate bytes a second.
func (p *Proxy) Slow(delay time.Duration, rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.rate = delay, rate
}

// Hide makes the lookups of a topic fail, until it is called with another topic or with "".
func (p *Proxy) Hide(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = topic[strings.LastIndex(topic, "/")+1:]
}

// Close ends the Proxy and all connections.
func (p *Proxy) Close() {
	p.tcp.Close()
	p.web.Close()
	p.Cut()
}
