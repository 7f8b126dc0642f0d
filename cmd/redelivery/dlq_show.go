package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
	"github.com/pulsar-redelivery/redelivery/internal/payload"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

func (d *dlq) list(ctx context.Context, namespace string) error {
	var isWanted func(string) (bool, error)
	if d.all {
		if err := d.reach(ctx); err != nil {
			return err
		}
		isWanted = func(topic string) (bool, error) { return d.holdsLetters(ctx, topic) }
	}
	all, err := topicsOf(ctx, d.api, cmp.Or(namespace, "public/default"), isWanted)
	if err != nil {
		return err
	}
	if d.asJSON {
		return writeJSON(d.stdout, all)
	}
	rows := [][]string{{"TOPIC", "SUBSCRIPTION", ">BACKLOG", ">OLDEST", ">IN/S", ">CONSUMERS"}}
	for _, info := range all {
		topic, rate := short(info.Topic), fmt.Sprintf("%.1f", info.Rate)
		if len(info.Subscriptions) == 0 {
			rows = append(rows, []string{topic, "NONE: messages are lost", "", "", rate, ""})
		}
		for _, s := range info.Subscriptions {
			rows = append(rows, []string{topic, clean(s.Name), count(s.Backlog), ago(s.Oldest), rate,
				count(s.Consumers)})
			topic, rate = "", ""
		}
	}
	if len(all) == 0 {
		fmt.Fprintln(d.stdout, map[bool]string{false: "No topic ends in -DLQ or -RETRY. -all looks at other topics " +
			"too.", true: "No topic has dead letters."}[d.all])
		return nil
	}
	writeTable(d.stdout, rows)
	return nil
}

// defaultSubscription is the default of package deadletter.
const defaultSubscription = dlqcommand.DefaultSubscription

// ownSub returns the subscription on which replay and purge acknowledge.
func (d *dlq) ownSub() string { return cmp.Or(d.subscription, defaultSubscription) }

// scope prints which letters the verb shows.
func (d *dlq) scope(ctx context.Context) error {
	info, err := topicNamed(ctx, d.api, d.topic)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("Everything that is stored; subscription %s does not exist yet.", clean(d.ownSub()))
	for _, s := range info.Subscriptions {
		if s.Name == d.ownSub() {
			text = fmt.Sprintf("Letters that subscription %s has not acknowledged.", clean(s.Name))
		}
	}
	fmt.Fprintln(d.stdout, text)
	for _, s := range info.Subscriptions {
		if s.Name != d.ownSub() && s.Backlog > 0 && s.Consumers == 0 {
			fmt.Fprintf(d.stdout, "Subscription %s keeps %s; -subscription %s shows these.\n", clean(s.Name),
				entries(s.Backlog), clean(s.Name))
		}
	}
	fmt.Fprintln(d.stdout)
	return nil
}

func (d *dlq) groups(ctx context.Context) error {
	all, err := d.letters.Groups(ctx, d.filter)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if err := d.noMatch(); err != nil {
			return err
		}
	}
	if d.asJSON {
		return writeJSON(d.stdout, all)
	}
	if err := d.scope(ctx); err != nil {
		return err
	}
	rows := [][]string{{">LETTERS", "GROUP", ">FIRST", ">LAST", "CAUSE"}}
	dead := len(all) == 0
	for _, g := range all {
		dead = dead || g.Type != "" || g.Reason != "" || g.Origin != "" || g.Subscription != ""
		cause := cause(g.Type, g.Reason)
		rows = append(rows, []string{count(g.Count), g.ID, ago(g.First), ago(g.Last), cause},
			[]string{"", "", "", "", fmt.Sprintf("%s on %s, such as %s", orDash(short(g.Origin)),
				orDash(clean(g.Subscription)), g.Example)})
	}
	d.table(rows)
	if !dead && !strings.HasSuffix(topicname.Base(d.topic), pulsar.DlqTopicSuffix) {
		fmt.Fprintf(d.stdout, "\n%s may be no dead letter topic: no message says where it came from or why it died.\n",
			short(d.topic))
	}
	return nil
}

func (d *dlq) peek(ctx context.Context) error {
	if !d.asJSON {
		if err := d.scope(ctx); err != nil {
			return err
		}
	}
	rows := [][]string{{"ID", ">DIED", "KEY", ">BYTES", "CAUSE"}}
	lines := json.NewEncoder(&jsonWriter{w: d.stdout})
	shown := 0
	for l, err := range d.letters.Peek(ctx, 0) {
		if err != nil {
			return err
		}
		if !d.filter.Match(&l) {
			continue
		}
		schema, err := d.schema(ctx, &l)
		if err != nil {
			return err
		}
		if d.asJSON {
			line := struct {
				deadletter.Letter
				Group string `json:"group"`
				Value any    `json:"value,omitempty"`
			}{l, l.Group(), nil}
			if !d.payload {
				line.Payload = nil
			} else if value, ok := decode(schema, &l); ok {
				line.Value = value
			}
			if err := lines.Encode(line); err != nil {
				return err
			}
		} else {
			rows = append(rows, []string{l.ID, ago(l.Died), orDash(fit(clean(l.Key), 12)), count(l.Size),
				cause(l.Type, l.Reason)})
			if d.payload {
				rows = append(rows, []string{"  " + fit(text(schema, &l), 1000)})
			}
		}
		shown++
		if shown == d.n {
			break
		}
	}
	if shown == 0 {
		if err := d.noMatch(); err != nil {
			return err
		}
	}
	if !d.asJSON {
		d.table(rows)
	}
	return nil
}

// table writes rows. The first one is the heading.
func (d *dlq) table(rows [][]string) {
	if len(rows) == 1 {
		fmt.Fprintln(d.stdout, "No letters.")
		return
	}
	writeTable(d.stdout, rows)
}

func (d *dlq) schema(ctx context.Context, l *deadletter.Letter) (*admin.Schema, error) {
	if !d.payload {
		return nil, nil
	}
	return d.schemas.Find(ctx, l.Schema)
}

// decode returns a payload as a value that JSON can represent. ok is false if that is impossible.
func decode(s *admin.Schema, l *deadletter.Letter) (value any, ok bool) {
	if l.Encrypted || l.Null {
		return nil, false
	}
	return payload.Decode(s, l.Payload)
}

// text returns a payload in one line.
func text(s *admin.Schema, l *deadletter.Letter) string {
	value, ok := decode(s, l)
	switch {
	case l.Null:
		return "null value"
	case l.Encrypted:
		return "encrypted"
	case !ok:
		return fmt.Sprintf("%x", l.Payload[:min(len(l.Payload), 500)])
	}
	if s, ok := value.(string); ok {
		return clean(s)
	}
	data, _ := json.Marshal(value) // on one line; cannot fail
	return clean(string(data))
}

func cause(kind, reason string) string {
	if kind == "" || reason == "" {
		return orDash(clean(kind + reason))
	}
	return clean(kind + ": " + reason)
}

func orDash(s string) string { return cmp.Or(s, "-") }

// short returns a topic's name without persistent:// and public/default.
func short(topic string) string {
	return clean(strings.TrimPrefix(strings.TrimPrefix(topic, topicname.Persistent), "public/default/"))
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// count formats a number with commas: 1,234,567.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func letters(verb string, n int) string {
	if n == 1 {
		return verb + " 1 letter."
	}
	return fmt.Sprintf("%s %s letters.", verb, count(n))
}
