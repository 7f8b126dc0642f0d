package pulsartest

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// session is one connection. Its reader handles one command at a time; its writer encodes and sends queued commands.
type session struct {
	server *Server
	conn   net.Conn
	log    *slog.Logger
	ended  chan struct{} // closed with the session

	// Guarded by server.mu.
	connected bool
	version   string // of the client
	gone      bool   // whether the session's consumers get no more messages
	detached  bool
	producers map[uint64]*producer
	consumers map[uint64]*consumer
	leftovers map[uint64]struct{} // producers that the broker has closed

	// queue has the commands to be sent. A goroutine that holds server.mu may lock queue; a goroutine that has locked
	// queue must not take server.mu.
	queue struct {
		sync.Mutex
		wake   chan struct{} // wakes the writer; capacity 1
		room   *sync.Cond    // the reader waits here for a slow client
		out    []outgoing
		closed bool
	}
}

// outgoing is a command to be sent, and the message that follows it.
type outgoing struct {
	cmd    wire.Command
	data   []byte
	queued time.Time
}

// maxQueued is how many commands may wait to be sent to a client. While more wait, the session does not read the
// client's next command.
const maxQueued = 20_000

func newSession(s *Server, conn net.Conn) *session {
	c := &session{
		server:    s,
		conn:      conn,
		ended:     make(chan struct{}),
		log:       s.logger.With("remote", conn.RemoteAddr().String()),
		producers: map[uint64]*producer{},
		consumers: map[uint64]*consumer{},
		leftovers: map[uint64]struct{}{},
	}
	c.queue.wake = make(chan struct{}, 1)
	c.queue.room = sync.NewCond(&c.queue)
	return c
}

// send queues a command. The caller holds server.mu.
func (c *session) send(cmd wire.Command, data []byte) {
	c.queue.Lock()
	defer c.queue.Unlock()
	if c.queue.closed {
		return
	}
	c.queue.out = append(c.queue.out, outgoing{cmd, data, time.Now()})
	select {
	case c.queue.wake <- struct{}{}:
	default:
	}
}

// close ends the session: its goroutines return soon after.
func (c *session) close() {
	_ = c.conn.Close()
	c.queue.Lock()
	defer c.queue.Unlock()
	if !c.queue.closed {
		c.queue.closed = true
		close(c.ended)
		c.queue.room.Broadcast()
	}
}

func (c *session) read() {
	defer c.server.tasks.Done()
	defer c.leave()
	r := wire.NewReader(c.conn, c.server.maxMessageSize)
	for {
		cmd, data, err := r.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) {
				c.log.Warn("pulsartest: closing a connection that cannot be read", "err", err)
			}
			return
		}
		verdict := c.server.ask(c, cmd, false)
		if !c.wait(verdict.delay) || verdict.action == disconnect {
			return
		}
		if verdict.action == drop || verdict.action == answer && c.answerInstead(cmd, verdict.err) {
			continue
		}
		if err := c.handle(cmd, data); err != nil {
			c.log.Warn("pulsartest: closing a connection that broke the protocol", "command", cmd.Type(), "err", err)
			return
		}
		c.waitForRoom()
	}
}

// answerInstead answers a command that is not carried out. It reports false if the command has to be carried out.
func (c *session) answerInstead(cmd wire.Command, err error) bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.answer(cmd, err)
}

// waitForRoom keeps a client that sends but does not read from using up memory.
func (c *session) waitForRoom() {
	c.queue.Lock()
	defer c.queue.Unlock()
	for len(c.queue.out) > maxQueued && !c.queue.closed {
		c.queue.room.Wait()
	}
}

func (c *session) write() {
	defer c.server.tasks.Done()
	defer c.close()
	var w *bufio.Writer // made with the first command, so that useless connections cost little
	var batch []outgoing
	var head []byte
	for {
		select {
		case <-c.ended:
			return
		case <-c.queue.wake:
		}
		c.queue.Lock()
		batch, c.queue.out = c.queue.out, batch[:0]
		c.queue.room.Signal()
		c.queue.Unlock()
		if w == nil {
			w = bufio.NewWriterSize(c.conn, 16*1024)
		}
		for i, out := range batch {
			verdict := c.server.ask(c, out.cmd, true)
			if wait := time.Until(out.queued.Add(verdict.delay)); verdict.delay > 0 && wait > 0 {
				if w.Flush() != nil || !c.wait(wait) {
					return
				}
			}
			switch verdict.action {
			case drop:
				continue
			case disconnect:
				return
			default:
			}
			head = wire.AppendFrame(head[:0], out.cmd, len(out.data))
			_, _ = w.Write(head)
			if _, err := w.Write(out.data); err != nil {
				return
			}
			batch[i] = outgoing{}
		}
		if w.Flush() != nil {
			return
		}
	}
}

// wait waits for d. It reports false if the session ends earlier.
func (c *session) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ended:
		return false
	}
}

// leave removes the session's producers and consumers.
func (c *session) leave() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.detach() // before the client can see that the connection is closed
	c.close()
	delete(s.sessions, c)
}

// detach closes the session's producers and consumers, while the session's goroutines may still run. The caller holds
// server.mu.
func (c *session) detach() {
	if c.detached {
		return
	}
	c.gone, c.detached = true, true
	for _, p := range c.producers {
		p.topic.removeProducer(p)
	}
	for _, k := range c.consumers {
		k.sub.remove(k)
	}
	clear(c.producers)
	clear(c.consumers)
}
