// Package doctor checks the settings that redelivery depends on: those of the broker, the namespace, the topics and the
// consumer. It reads the admin API, looks topics up, and briefly opens producers for the retry and the dead letter
// topic if these exist. It changes nothing. Command redelivery doctor prints its findings, and docs/checks.md describes
// each check.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Setup describes the consumer to examine. A zero field is unknown, or means its default.
type Setup struct {
	// Admin is the broker's admin API. Without its URL, only the checks that need no admin API are run.
	Admin Admin
	// Client is the client with which Examine looks the topic up and tries to open producers. Without a Client, Examine
	// does neither. The caller closes it.
	Client pulsar.Client

	// Topic is the name of the topic. Required.
	Topic string
	// Subscription is the name of the subscription. Required.
	Subscription string
	// Type is the subscription type in the options: Exclusive, Shared, Failover or Key_Shared. Default: the broker's.
	Type string

	// Policy says when messages come back.
	Policy Policy
	// RetryTopic is the name of the retry topic. A name without a namespace, here and in DeadLetterTopic, is in the
	// namespace of Topic. Default: <topic>-<subscription>-RETRY, if there is such a topic.
	RetryTopic string
	// DeadLetterTopic is the name of the dead letter topic. Default: <topic>-<subscription>-DLQ, if there is such a
	// topic.
	DeadLetterTopic string
	// InitialSubscriptionName is the option of the dead letter policy: the name of a subscription of the dead letter
	// topic. Default: none.
	InitialSubscriptionName string

	// Consumer is the configuration of the client.
	Consumer Consumer
	// Worker is the configuration of the worker; nil if it is not known, or if there is no worker.
	Worker *Worker
	// Load is how much work there is.
	Load Load

	// Patience is how long Examine waits before it reads statistics again if a consumer seems to do nothing. Default:
	// 3s.
	Patience time.Duration
}

// Policy says when messages come back, and how often.
type Policy struct {
	Nack              backoff.RedeliveryBackoff // delays of nacks; default: one minute
	NackRetryTopic    time.Duration             // nacks from this delay on go to the retry topic; 0 for none
	AckTimeout        time.Duration             // 0 for none
	AckTimeoutBackoff backoff.RedeliveryBackoff // delays that are added to AckTimeout; nil for none
	Reconsume         backoff.RedeliveryBackoff // delays on the retry topic; default: backoff.DefaultDelayLevels
	MaxDeliveries     uint32                    // after these the message is a dead letter; 0 for no limit
	MaxReconsumes     uint32                    // after these the message is a dead letter; 0 for no limit
	MemoryLimit       int64                     // bytes of messages that wait; 0 for 16 MiB, -1 for none
	DeadBeforeTTL     time.Duration             // WithDeadBeforeTTL; 0 for none
}

// Consumer is the configuration of pulsar-client-go.
type Consumer struct {
	ReceiverQueueSize             int           // 0 for 1,000
	BatchIndexAcknowledgment      *bool         // EnableBatchIndexAcknowledgment; nil if it is not known
	KeepAliveInterval             time.Duration // 0 for 30 s
	OperationTimeout              time.Duration // 0 if it is not known
	TerminationGracePeriodSeconds int           // as set in Kubernetes; 0 if it is not known
}

// Worker is the configuration of a worker.
type Worker struct {
	Concurrency  int           // 0 if it is not known
	Timeout      time.Duration // of a handler; 0 for none
	DrainTimeout time.Duration // 0 ends handlers at once
	Pauses       bool          // WithPauseOnFailure is given
}

// Load is how much work there is.
type Load struct {
	HandlerTime time.Duration // how long a handler takes for a message; 0 if it is not known
	Concurrency int           // messages that a process handles at a time; 0 for the worker's
	Instances   int           // consumers of the subscription; 0 for the number of connected ones
	Failing     float64       // the fraction of messages that fail until they are dead letters; 0 for 0.01
}

// Admin is the broker's admin REST API.
type Admin struct {
	URL string // such as http://localhost:8080
	// Client makes the requests, with authentication and TLS if the API needs them. Default: http.DefaultClient.
	Client *http.Client
}

// Status is the result of a check.
type Status uint8

const (
	// None means that the check does not apply.
	None Status = iota
	// OK means that the check found nothing wrong.
	OK
	// Unknown means that the check could not look something up, for instance for lack of permission.
	Unknown
	// Warning means that messages may be late, come twice or be lost under conditions that Found names.
	Warning
	// Problem means that messages are late, come twice, are lost or do not come.
	Problem
)

// String returns none, ok, unknown, warning or problem.
func (s Status) String() string { return [...]string{"none", "ok", "unknown", "warning", "problem"}[s] }

// MarshalJSON writes the status as a word.
func (s Status) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`            // the check's name
	Status Status `json:"status"`           // how serious it is
	Found  string `json:"found"`            // the result, in words
	Why    string `json:"why,omitempty"`    // why it matters; for a warning or a problem
	Remedy string `json:"remedy,omitempty"` // a command or an option that helps; for a warning or a problem
	Link   string `json:"link,omitempty"`   // to the check in docs/checks.md
}

// Examine runs all checks, in the order of Checks, and returns the findings of those that apply. It takes some seconds
// if a consumer seems to do nothing. It calls each policy up to 10,000 times. When ctx is done, the remaining checks
// are Unknown. Without Setup.Topic, the check topic is Unknown, and Examine runs only the checks that need no admin
// API.
func Examine(ctx context.Context, s Setup) []Finding {
	if s.Topic == "" {
		s.Admin, s.Client = Admin{}, nil
		return append([]Finding{{Check: topicExists.Name, Status: Unknown,
			Found: "the topic is not known; for a consumer of Wrap or of a pattern, set Setup.Topic"}},
			examine(newVisit(ctx, s), func(Check) bool { return true })...)
	}
	return examine(newVisit(ctx, s), func(Check) bool { return true })
}

// ExamineOptions runs the checks that need only a consumer's options. It does not connect to a broker, and calls only
// policies of package backoff.
func ExamineOptions(s Setup) []Finding {
	s.Admin, s.Client = Admin{}, nil
	return examine(newVisit(context.Background(), s), func(c Check) bool { return c.Needs == Options })
}

func examine(v *visit, wanted func(Check) bool) []Finding {
	findings := []Finding{}
	for _, c := range checks {
		if !wanted(c) {
			continue
		}
		if f := v.run(c); f.Status != None {
			findings = append(findings, f)
		}
	}
	return findings
}

func (v *visit) run(c Check) Finding {
	found := verdict{}
	v.read = nil
	if c.Needs <= Given || v.Admin.URL != "" && !v.unreachable {
		found = c.look(v)
	}
	f := Finding{Check: c.Name, Status: found.status, Found: found.text}
	if f.Status >= Warning {
		f.Why, f.Remedy, f.Link = plain(c.Why), plain(v.fill(c.Remedy))+v.overridden(c.Remedy), c.Link()
	}
	return f
}

// plain removes the backquotes from a text.
func plain(text string) string { return strings.ReplaceAll(text, "`", "") }

// Worst returns the worst status of findings; OK or None if there is nothing to report.
func Worst(findings []Finding) Status {
	worst := None
	for _, f := range findings {
		worst = max(worst, f.Status)
	}
	return worst
}

// verdict is the result of a check's function.
type verdict struct {
	status Status
	text   string
}

func ok(format string, args ...any) verdict { return verdict{OK, fmt.Sprintf(format, args...)} }

func warning(format string, args ...any) verdict {
	return verdict{Warning, fmt.Sprintf(format, args...)}
}

func problem(format string, args ...any) verdict {
	return verdict{Problem, fmt.Sprintf(format, args...)}
}

// judge returns a verdict with the status OK if fine is true, and with the status worst otherwise.
func judge(fine bool, worst Status, format string, args ...any) verdict {
	if fine {
		worst = OK
	}
	return verdict{worst, fmt.Sprintf(format, args...)}
}

// worse returns the worse verdict. If both are equally bad, it returns one with both texts.
func worse(a, b verdict) verdict {
	switch {
	case a.status > b.status:
		return a
	case a.status < b.status:
		return b
	case a.text != "" && b.text != "" && a.text != b.text:
		a.text += "; " + b.text
	}
	return a
}
