package ui

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
	"github.com/pulsar-redelivery/redelivery/internal/simulate"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// Within these limits a simulation takes about a second of CPU.
const (
	mostMessages = 500_000
	mostEvents   = 3_000_000
	simulations  = 1 // at a time
)

var simulating = make(chan struct{}, simulations)

// policy is one choice in the page's list of policies.
type policy struct {
	Name          string
	nack          backoff.RedeliveryBackoff
	MaxDeliveries uint32
	concurrency   int
	pause         func(*simulate.Setup)
}

// policies returns the policies of the services and of the file. The last policy is that of the page's own fields.
func (h *Handler) policies(custom backoff.RedeliveryBackoff, maxDeliveries int) (all []policy) {
	for _, s := range h.o.Services {
		o := s.Consumer.Options()
		p := policy{Name: "this process: " + o.Subscription, nack: o.Nack, MaxDeliveries: o.MaxDeliveries}
		if s.Worker != nil {
			p.concurrency = s.Worker.Options().Concurrency
		}
		all = append(all, p)
	}
	if c := h.o.Config; c != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Consumers)) {
			of, w := c.Consumers[name], c.Workers[name]
			p := policy{Name: "consumer: " + name, nack: of.NackRedeliveryBackoff, MaxDeliveries: of.MaxDeliveries,
				concurrency: w.Concurrency}
			if of.NackRedeliveryDelay != nil {
				p.nack = backoff.Fixed(*of.NackRedeliveryDelay)
			}
			p.pause = func(s *simulate.Setup) {
				s.Window, s.Ratio, s.Pause = w.PauseOnFailureWindow, w.PauseOnFailureRatio, w.PauseOnFailureBackoff
			}
			all = append(all, p)
		}
		if len(c.Consumers) == 0 {
			for _, name := range slices.Sorted(maps.Keys(c.Policies)) {
				all = append(all, policy{Name: "policy: " + name, nack: c.Policies[name]})
			}
		}
	}
	for i := range all {
		if all[i].nack == nil {
			all[i].nack = backoff.Fixed(nack.DefaultDelay)
		}
	}
	return append(all, policy{Name: ownPolicy, nack: custom, MaxDeliveries: uint32(maxDeliveries)})
}

const ownPolicy = "exponential, as below"

// number is a slider of the page.
type number struct {
	Name, Label, Unit string
	Min, Max, Step    float64
	Value             float64
}

func (n number) Text() string { return strconv.FormatFloat(n.Value, 'f', -1, 64) }

// step is a redelivery in the picture of a schedule.
type step struct {
	N            int
	Delay, Total string
	X, Y         float64
	Dead         bool
}

func (h *Handler) policiesPage(w http.ResponseWriter, r *http.Request) {
	sliders := []number{
		{"min", "First delay", "s", 1, 600, 1, 1}, {"max", "Longest delay", "s", 1, 7200, 1, 600},
		{"multiplier", "Multiplier", "×", 1, 5, 0.5, 2},
		{"deliveries", "Deliveries, 0 for no limit", "", 0, 50, 1, 12},
	}
	load := []number{
		{"rate", "Messages", "/s", 1, 500, 1, 50}, {"instances", "Processes", "", 1, 20, 1, 2},
		{"concurrency", "Handlers of each", "", 1, 64, 1, 8},
		{"handler", "A call takes", "ms", 1, 1000, 1, 20}, {"outage", "Outage", "min", 1, 60, 1, 10},
		{"partial", "Calls that fail", "%", 1, 100, 1, 100},
	}
	for _, group := range [][]number{sliders, load} {
		for i := range group {
			if x, err := strconv.ParseFloat(r.FormValue(group[i].Name), 64); err == nil && x >= group[i].Min &&
				x <= group[i].Max {
				group[i].Value = x
			}
		}
	}
	seconds := func(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }
	custom := backoff.Exponential{Min: seconds(sliders[0].Value), Max: seconds(max(sliders[0].Value, sliders[1].Value)),
		Multiplier: sliders[2].Value}
	all := h.policies(custom, int(sliders[3].Value))
	chosen := all[0]
	if i := slices.IndexFunc(all, func(p policy) bool { return p.Name == r.FormValue("policy") }); i >= 0 {
		chosen = all[i]
	}
	for i := range load { // without a value in the form, the worker's concurrency counts
		if load[i].Name == "concurrency" && r.FormValue("concurrency") == "" && chosen.concurrency > 0 {
			load[i].Value = min(float64(chosen.concurrency), load[i].Max)
		}
	}
	data := struct {
		Policies      []policy
		Chosen        string
		Own           bool
		Sliders, Load []number
		Pause         bool
		Steps         []step
		Line          string
		Result        *outcome
		Err           string
	}{Policies: all, Chosen: chosen.Name, Own: chosen.Name == ownPolicy, Sliders: sliders, Load: load,
		Pause: r.FormValue("pause") != ""}
	data.Steps, data.Line = schedule(chosen)
	s := simulate.Setup{Rate: load[0].Value, Instances: int(load[1].Value), Concurrency: int(load[2].Value),
		Handler: time.Duration(load[3].Value * float64(time.Millisecond)),
		Queue:   1000, Before: time.Minute, Outage: time.Duration(load[4].Value) * time.Minute,
		Partial: load[5].Value / 100, Nack: chosen.nack,
		MaxDeliveries: chosen.MaxDeliveries, Tick: time.Second, MaxUnacked: 50_000, MaxTogether: 200_000,
		MostEvents: mostEvents}
	s.Longest = max(time.Hour, 4*s.Outage)
	if chosen.pause != nil {
		chosen.pause(&s)
	}
	if data.Pause && s.Window == 0 {
		s.Window, s.Ratio, s.Pause = 100, 0.9, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}
	}
	if r.FormValue("simulate") != "" {
		data.Result, data.Err = h.simulate(r, s)
	}
	h.render(w, r, http.StatusOK, page{Title: "Policies", Name: "policies", Data: data})
}

// schedule draws when a message comes back if it fails each time. The horizontal axis is the time since the first
// failure, the vertical axis is the delay, both logarithmic.
func schedule(p policy) (steps []step, line string) {
	n := 15
	if p.MaxDeliveries > 0 && p.MaxDeliveries <= 50 {
		n = int(p.MaxDeliveries)
	}
	var total, longest time.Duration
	type point struct{ delay, total time.Duration }
	var points []point
	for i := range n {
		if p.MaxDeliveries > 0 && i+1 == int(p.MaxDeliveries) { // the last failure makes the dead letter at once
			points = append(points, point{0, total})
			break
		}
		shortest, most := policies.Bounds(p.nack, uint32(i))
		delay := shortest + (most-shortest)/2
		if total > math.MaxInt64-delay { // a time.Duration cannot hold more
			break
		}
		total += delay
		longest = max(longest, delay)
		points = append(points, point{delay, total})
	}
	if len(points) == 0 {
		return nil, ""
	}
	first := max(points[0].delay.Seconds(), 0.001)
	scale := func(d, most time.Duration, size float64) float64 {
		return size * math.Log1p(d.Seconds()/first) / max(math.Log1p(most.Seconds()/first), 0.01)
	}
	var path strings.Builder
	for i, x := range points {
		at := step{N: i + 1, Delay: length(x.delay), Total: length(x.total), X: 20 + scale(x.total, total, 560),
			Y: 110 - scale(x.delay, longest, 90)}
		if i == len(points)-1 && p.MaxDeliveries > 0 && i+1 == int(p.MaxDeliveries) {
			at.Dead = true
			at.Y = 110
		}
		steps = append(steps, at)
		fmt.Fprintf(&path, "%.1f,%.1f ", at.X, at.Y)
	}
	return steps, path.String()
}

// length formats a duration for display: rounded to seconds from a minute on, to milliseconds below.
func length(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return span(d)
	case d >= time.Minute:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Millisecond)
	}
	return durations.Short(d)
}

// outcome is the result of a simulation, for the page.
type outcome struct {
	simulate.Result
	Recovery           string
	MostCalls          string
	MostWaiting        string
	Calls              []bar
	Waiting, Letters   string // points of their polylines
	OutageX, OutageEnd int
	Whole              string
}

// simulate simulates an outage on the server. Only one simulation runs at a time.
func (h *Handler) simulate(r *http.Request, s simulate.Setup) (*outcome, string) {
	if messages := s.Rate * (s.Before + s.Outage).Seconds(); messages > mostMessages {
		return nil, fmt.Sprintf("This would simulate %s messages; the page allows %s. Choose a shorter outage or a "+
			"lower rate, or use the command redelivery simulate, which allows more.",
			count(int(messages)), count(mostMessages))
	}
	select {
	case simulating <- struct{}{}:
		defer func() { <-simulating }()
	case <-r.Context().Done():
		return nil, ""
	}
	result, err := simulate.Run(s)
	if err != nil {
		return nil, errorText(err) + ". Choose a shorter outage, a lower rate or longer delays, or use the command " +
			"redelivery simulate, which allows more."
	}
	o := &outcome{Result: result, Recovery: "not within " + length(s.Longest) + " after the outage"}
	if result.Recovered {
		o.Recovery = length(result.After.Round(time.Second)) + " after the outage"
	}
	const wide, high, columns = 600, 110, 150
	calls, waiting := 1.0, 1.0
	n := min(len(result.Points), columns)
	type column struct{ calls, waiting, dead float64 }
	all := make([]column, n)
	for i, p := range result.Points {
		c := &all[i*n/len(result.Points)]
		c.calls = max(c.calls, float64(p.Calls)/result.Step.Seconds())
		c.waiting = max(c.waiting, float64(p.Backlog+p.Waiting))
		c.dead = float64(p.Dead)
		calls, waiting = max(calls, c.calls), max(waiting, c.waiting, c.dead)
	}
	var waits, dead strings.Builder
	for i, c := range all {
		height := int(c.calls / calls * high)
		o.Calls = append(o.Calls, bar{X: i * wide / n, Y: high - height, Height: height})
		x := (float64(i) + 0.5) * wide / float64(n)
		fmt.Fprintf(&waits, "%.1f,%.1f ", x, high*(1-c.waiting/waiting))
		fmt.Fprintf(&dead, "%.1f,%.1f ", x, high*(1-c.dead/waiting))
	}
	whole := time.Duration(len(result.Points)) * result.Step
	at := func(t time.Duration) int { return min(int(float64(t)/float64(whole)*wide), wide) }
	o.Waiting, o.Letters, o.Whole = waits.String(), dead.String(), length(whole)
	o.OutageX, o.OutageEnd = at(s.Before), at(s.Before+s.Outage)
	o.MostCalls, o.MostWaiting = count(int(calls)), count(int(waiting))
	return o, ""
}

// Width returns the width of the outage in the picture.
func (o *outcome) Width() int { return max(o.OutageEnd-o.OutageX, 1) }
