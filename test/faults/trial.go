package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/history"
	"github.com/pulsar-redelivery/redelivery/test/internal/proxy"
)

// trial makes one fault while messages are handled.
type trial struct {
	fault     *fault
	work      work
	with      []string      // names of variants
	during    time.Duration // how long owners of partitions and keys change
	random    *rand.Rand
	broker    *broker
	proxy     *proxy.Proxy
	logProxy  *proxy.Proxy // between the log's client and the broker
	publisher *publisher
	letters   func()  // ends the reader of dead letters
	record    *record // events of the trial itself
	faults    int     // faults that may have broken connections
	started   int     // number of consumers started
	local     *consumer
	others    []process
	notes     []string // printed after the row
}

// process is a consumer in a process of its own.
type process struct {
	*exec.Cmd
	name string
	over chan struct{} // closed when the process has ended
}

// name returns the names of the fault and the variants.
func (t *trial) name() string { return strings.Join(append([]string{t.fault.name}, t.with...), " +") }

// add applies the named variant, if it fits.
func (t *trial) add(name string) {
	for _, v := range variants {
		if v.name == name && v.fits(t.work) {
			v.set(&t.work)
			t.with = append(slices.Clip(t.with), name)
		}
	}
}

// run makes the fault, and waits until every message is finished.
func (t *trial) run(ctx context.Context, own *broker) (result, error) {
	b, stop, err := t.brokerFor(ctx, own)
	if err != nil {
		return result{}, err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, t.during+5*time.Minute)
	defer cancel()
	if err := t.connect(b); err != nil {
		return result{}, err
	}
	defer t.proxy.Close()
	defer t.logProxy.Close()
	if err := t.prepare(ctx); err != nil {
		return result{}, fmt.Errorf("publishing: %w", err)
	}
	defer t.publisher.close()
	if err := t.start(ctx); err != nil {
		return result{}, err
	}
	defer t.stop()
	if err := t.fault.make(ctx, t); err != nil {
		return result{}, err
	}
	if t.faults > 0 {
		t.noteFault("over")
	}
	err = t.drain(ctx)
	var stuck *stuckError
	if errors.As(err, &stuck) { // another consumer takes its place, and shows whether messages are lost
		_ = t.stop()
		if err = t.start(ctx); err == nil {
			err = t.drain(ctx)
		}
	}
	if err == nil {
		t.letters()
		t.record.note(history.Event{Kind: history.Drained})
		err = t.logIsBack(ctx)
	}
	err = errors.Join(err, t.stop()) // completes the history
	r, checkErr := t.finish()
	return r, errors.Join(err, checkErr)
}

// brokerFor returns the broker that the fault needs: own, or one started for this trial.
func (t *trial) brokerFor(ctx context.Context, own *broker) (b *broker, stop func(), err error) {
	switch t.fault.needs { //nolint:exhaustive // other faults use own
	case guarded:
		b, stop, t.work.Token, err = startGuarded(ctx)
		return b, stop, err
	case clustered:
		return startCluster(ctx)
	case inProcess:
		if own.inProcess == nil {
			return startInProcess()
		}
	}
	return own, func() {}, nil
}

// connect puts proxies between the consumers and the broker. A cluster has no proxies: its clients must find both
// brokers.
func (t *trial) connect(b *broker) (err error) {
	t.broker = b
	if t.proxy, err = proxy.New(b.url, b.admin); err != nil {
		return err
	}
	if t.logProxy, err = proxy.New(b.url, b.admin); err != nil {
		return err
	}
	t.work.URL, t.work.LogURL = t.proxy.URL, t.logProxy.URL
	if b.members != nil {
		t.work.URL, t.work.LogURL = b.url, b.url
	}
	return nil
}

// prepare creates the topic and publishes its messages.
func (t *trial) prepare(ctx context.Context) error {
	return patiently(ctx, func() (err error) {
		t.work.Topic = fmt.Sprintf("persistent://public/default/faults-%08x", rand.Uint32())
		if t.work.Partitions > 0 {
			if err := t.broker.callAdmin(ctx, "PUT", t.work.Topic+"/partitions", t.work.Partitions, nil); err != nil {
				return err
			}
		}
		if t.record, err = newRecord(t.work.Dir, "trial"); err != nil {
			return err
		}
		t.work.Healed = time.Now().Add(t.during)
		if t.publisher, err = newPublisher(t.broker.url, t.work, t.record); err != nil {
			return err
		}
		if t.fault.needs == guarded {
			if err := t.allow(ctx); err != nil {
				return err
			}
		}
		if t.letters, err = t.readLetters(); err != nil {
			return err
		}
		return t.publish(ctx, 0, t.work.Messages)
	})
}

// publish publishes messages and waits until the broker has them.
func (t *trial) publish(ctx context.Context, from, to int) error {
	for n := from; n < to; n++ {
		if err := t.publisher.send(ctx, n); err != nil {
			return err
		}
	}
	return t.publisher.flush(ctx)
}

// start starts the consumers.
func (t *trial) start(ctx context.Context) error {
	if t.work.Processes == 0 {
		client, err := newClient(t.work)
		if err != nil {
			return err
		}
		return patiently(ctx, func() (err error) {
			t.local, err = startConsumer(client, t.named())
			return err
		})
	}
	for range t.work.Processes {
		if err := t.startProcess(); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) startProcess() error {
	w := t.named()
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := process{exec.Command(self, "-worker", string(text)), w.Name, make(chan struct{})}
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.over)
		_ = p.Wait()
	}()
	t.others = append(t.others, p)
	return nil
}

// end ends the process of the oldest consumer: with os.Kill like a crash, with os.Interrupt normally.
func (t *trial) end(by os.Signal) error {
	oldest := t.others[0]
	t.others = t.others[1:]
	if by == os.Kill {
		t.record.note(history.Event{Kind: history.Killed, Consumer: oldest.name})
	}
	err := oldest.Process.Signal(by)
	<-oldest.over
	if by == os.Interrupt && !oldest.ProcessState.Success() {
		return fmt.Errorf("%s: %v", oldest.name, oldest.ProcessState)
	}
	return err
}

func (t *trial) stop() (err error) {
	if t.local != nil {
		t.local.close()
		t.local.client.Close()
		t.local = nil
	}
	for len(t.others) > 0 {
		err = errors.Join(err, t.end(os.Interrupt))
	}
	return err
}

// until waits until the messages have reached a state, and shows their progress.
func (t *trial) until(ctx context.Context, what string, reached func(counts) bool) error {
	for {
		n := t.progress()
		t.show("%s: %v", what, n)
		if reached(n) {
			return nil
		}
		if sleep(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%s: %v: %w", what, n, context.Cause(ctx))
		}
	}
}
