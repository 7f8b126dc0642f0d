package pulsartest_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Billing is a service like yours: it takes orders from one topic, and sends an invoice for each to another topic. An
// order that cannot be billed comes again.
type Billing struct {
	orders   pulsar.Consumer
	invoices pulsar.Producer
	done     sync.WaitGroup
}

type Order struct {
	ID    string
	Cents int
}

func StartBilling(ctx context.Context, client pulsar.Client) (*Billing, error) {
	orders, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic:               "orders",
		SubscriptionName:    "billing",
		Type:                pulsar.Shared,
		NackRedeliveryDelay: 50 * time.Millisecond,
		AckWithResponse:     true,
	})
	if err != nil {
		return nil, err
	}
	invoices, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "invoices", SendTimeout: time.Second,
		DisableBatching: true})
	if err != nil {
		orders.Close()
		return nil, err
	}
	b := &Billing{orders: orders, invoices: invoices}
	b.done.Go(func() {
		for {
			msg, err := orders.Receive(ctx)
			if err != nil {
				return
			}
			if b.bill(ctx, msg) != nil || orders.Ack(msg) != nil {
				orders.Nack(msg)
			}
		}
	})
	return b, nil
}

func (b *Billing) bill(ctx context.Context, msg pulsar.Message) error {
	var order Order
	if err := json.Unmarshal(msg.Payload(), &order); err != nil {
		return err
	}
	if order.Cents <= 0 {
		return errors.New("nothing to bill")
	}
	_, err := b.invoices.Send(ctx, &pulsar.ProducerMessage{Key: order.ID, Payload: msg.Payload()})
	return err
}

func (b *Billing) Stop() {
	b.orders.Close()
	b.done.Wait()
	b.invoices.Close()
}

// The rest of this file is your test.

func newBilling(t *testing.T) *pulsartest.Server {
	broker := pulsartest.NewServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	billing, err := StartBilling(ctx, broker.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		billing.Stop()
	})
	return broker
}

func order(id string, cents int) *pulsar.ProducerMessage {
	payload, _ := json.Marshal(Order{id, cents})
	return &pulsar.ProducerMessage{Payload: payload, Key: id}
}

func settled(s pulsartest.Subscription) bool { return s.Type != "" && s.Backlog == 0 }

func TestBillingSendsAnInvoiceForEachOrder(t *testing.T) {
	broker := newBilling(t)
	broker.Publish(t, "orders", order("a", 100), order("b", 250))
	broker.Await(t, "orders", "billing", 5*time.Second, settled)
	invoices := broker.Messages("invoices")
	if len(invoices) != 2 || invoices[0].Key != "a" || invoices[1].Key != "b" {
		t.Errorf("invoices: %+v", invoices)
	}
}

func TestBillingGetsABadOrderAgain(t *testing.T) {
	broker := newBilling(t)
	broker.Publish(t, "orders", order("free", 0), order("a", 100))
	state := broker.Await(t, "orders", "billing", 5*time.Second,
		func(s pulsartest.Subscription) bool { return s.Redelivered >= 3 })
	if state.Backlog != 1 {
		t.Errorf("%d orders are left, want the free one", state.Backlog)
	}
}

// The broker loses the first invoice. Billing must not acknowledge an order before the invoice is sent.
func TestBillingLosesNoInvoice(t *testing.T) {
	broker := newBilling(t)
	broker.Inject("SEND", "invoices", 1, pulsartest.Drop)
	broker.Publish(t, "orders", order("a", 100))
	broker.Await(t, "orders", "billing", 10*time.Second, settled)
	if n := len(broker.Messages("invoices")); n != 1 {
		t.Errorf("%d invoices, want 1", n)
	}
}

// The broker refuses every second acknowledgement, and unloads the topic once.
func TestBillingSurvivesItsBroker(t *testing.T) {
	broker := newBilling(t)
	acks := 0
	var mu sync.Mutex
	broker.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		if c.Type == "ACK" && c.Subscription == "billing" {
			acks++
			if acks%2 == 1 {
				return pulsartest.Fail("PersistenceError", "the disk is full")
			}
		}
		return pulsartest.Pass
	})
	broker.Publish(t, "orders", order("a", 100), order("b", 250))
	broker.Unload("orders")
	// An acknowledgement that reaches the broker during the unload gets no answer. pulsar-client-go waits 30 s for the
	// answer before it connects again.
	broker.Await(t, "orders", "billing", time.Minute, settled)
	seen := map[string]bool{}
	for _, m := range broker.Messages("invoices") {
		seen[m.Key] = true
	}
	if !seen["a"] || !seen["b"] {
		t.Errorf("invoices of %v", seen)
	}
}

func TestBillingWaitsForOrdersOfTomorrow(t *testing.T) {
	broker := newBilling(t)
	tomorrow := order("a", 100)
	tomorrow.DeliverAfter = 24 * time.Hour
	broker.Publish(t, "orders", tomorrow)
	broker.Await(t, "orders", "billing", 5*time.Second, func(s pulsartest.Subscription) bool { return s.Delayed == 1 })
	broker.FastForward(24 * time.Hour)
	broker.Await(t, "orders", "billing", 5*time.Second, settled)
}
