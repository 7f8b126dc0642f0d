package outages_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery/internal/outages"
)

type outage = outages.Outage[string]

func attempt(message string, result outages.Result) outages.Attempt[string] {
	return outages.Attempt[string]{Message: message, Result: result}
}

func probe(message string, result outages.Result) outages.Attempt[string] {
	return outages.Attempt[string]{Message: message, Result: result, Probe: true}
}

// in returns an Outage in a state. Two failures in a row open it.
func in(state outages.State) *outage {
	o := outages.New[string](2, 1)
	if state != outages.Closed {
		o.Report(attempt("a", outages.Failed))
		o.Report(attempt("b", outages.Failed))
		o.Wait(time.Second)
	}
	if state == outages.Probing {
		o.Try()
	}
	return &o
}

// TestStates has a row for each cell of the table of states.
func TestStates(t *testing.T) {
	const closed, open, probing = outages.Closed, outages.Open, outages.Probing
	for _, c := range []struct {
		from  outages.State
		event string
		do    func(*outage)
		to    outages.State
		tries uint32
	}{
		{closed, "a message fails", func(o *outage) { o.Report(attempt("c", outages.Failed)) }, closed, 0},
		{closed, "two fail", func(o *outage) {
			o.Report(attempt("c", outages.Failed))
			o.Report(attempt("d", outages.Failed))
		}, open, 0},
		{closed, "one fails twice", func(o *outage) {
			o.Report(attempt("c", outages.Failed))
			o.Report(outages.Attempt[string]{Message: "c", Result: outages.Failed, Before: true})
		}, closed, 0},
		{closed, "two fail, one is unclear between them", func(o *outage) {
			o.Report(attempt("c", outages.Failed))
			o.Report(attempt("d", outages.Unclear))
			o.Report(attempt("e", outages.Failed))
		}, open, 0},
		{closed, "two fail, one succeeds between them", func(o *outage) {
			o.Report(attempt("c", outages.Failed))
			o.Report(attempt("d", outages.Succeeded))
			o.Report(attempt("e", outages.Failed))
		}, closed, 0},
		{closed, "a try", func(o *outage) { o.Try() }, closed, 0},
		{closed, "a probe takes long", func(o *outage) { o.TakesLong() }, closed, 0},
		{open, "a message succeeds", func(o *outage) { o.Report(attempt("c", outages.Succeeded)) }, closed, 0},
		{open, "a message fails", func(o *outage) { o.Report(attempt("c", outages.Failed)) }, open, 0},
		{open, "a message is unclear", func(o *outage) { o.Report(attempt("c", outages.Unclear)) }, open, 0},
		{open, "a try", func(o *outage) { o.Try() }, probing, 0},
		{open, "a probe fails", func(o *outage) { o.Report(probe("c", outages.Failed)) }, open, 1},
		{open, "the end", func(o *outage) { o.Close() }, closed, 0},
		{probing, "the probe succeeds", func(o *outage) { o.Report(probe("c", outages.Succeeded)) }, closed, 0},
		{probing, "the probe fails", func(o *outage) { o.Report(probe("c", outages.Failed)) }, open, 1},
		{probing, "the probe is unclear", func(o *outage) { o.Report(probe("c", outages.Unclear)) }, open, 0},
		{probing, "the probe takes long", func(o *outage) { o.TakesLong() }, open, 1},
		{probing, "another message succeeds", func(o *outage) { o.Report(attempt("c", outages.Succeeded)) }, closed, 0},
		{probing, "another message fails", func(o *outage) { o.Report(attempt("c", outages.Failed)) }, probing, 0},
		{probing, "there is nothing to try", func(o *outage) { o.Wait(time.Second) }, open, 0},
		{probing, "another try", func(o *outage) { o.Try() }, probing, 0},
		{probing, "the end", func(o *outage) { o.Close() }, closed, 0},
	} {
		t.Run(fmt.Sprintf("%d: %s", c.from, c.event), func(t *testing.T) {
			o := in(c.from)
			c.do(o)
			require.Equal(t, c.to, o.State())
			require.Equal(t, c.tries, o.Tries())
		})
	}
}

func TestFirstTwoFailedProbesOfAMessageKeepIt(t *testing.T) {
	o := in(outages.Open)
	require.True(t, o.Keeps("a"))
	for _, keeps := range []bool{true, true, false, false} {
		o.Try()
		o.Report(probe("a", outages.Failed))
		require.Equal(t, keeps, o.Keeps("a"))
		require.True(t, o.Keeps("b"))
	}
	o.Report(attempt("c", outages.Succeeded))
	require.False(t, o.Keeps("b"), "a message is kept although the outage is over")
}

func TestPauseIsNoShorterThanTheLastFailureAsked(t *testing.T) {
	o := in(outages.Open)
	asks := probe("a", outages.Failed)
	asks.Asked = 5 * time.Second
	o.Report(asks)
	require.Zero(t, o.Pause())
	require.Equal(t, 5*time.Second, o.Wait(2*time.Second))
	require.Equal(t, 6*time.Second, o.Wait(6*time.Second))
	o.Try()
	require.Equal(t, 6*time.Second, o.Pause())
	o.Report(probe("b", outages.Failed))
	require.Equal(t, 2*time.Second, o.Wait(2*time.Second))
}

// The factor is 1 again once as many windows of messages as the factor have succeeded in a row.
func TestOutageSoonAfterAnotherNeedsMoreFailures(t *testing.T) {
	failures := func(o *outage) (n int) {
		for o.State() == outages.Closed {
			o.Report(attempt(fmt.Sprint(n), outages.Failed))
			n++
		}
		return n
	}
	o := outages.New[string](20, 0.9)
	require.Equal(t, 20, failures(&o)) // an outage needs a whole window of messages
	require.Equal(t, 1, o.Looks())
	succeeds := attempt("x", outages.Succeeded)
	o.Report(succeeds)
	require.Equal(t, 4*18, failures(&o))
	require.Equal(t, 16, o.Looks())
	o.Report(succeeds)
	require.Equal(t, 16*18, failures(&o))
	for range 16*4*20 + 1 {
		o.Report(succeeds)
	}
	require.Equal(t, 18, failures(&o))
}

func TestLooksGrowToAThousand(t *testing.T) {
	o := in(outages.Open)
	var looks []int
	for range 8 {
		looks = append(looks, o.Looks())
		o.Report(probe("a", outages.Failed))
	}
	require.Equal(t, []int{1, 4, 16, 64, 256, 1000, 1000, 1000}, looks)
}

func TestNextPrefersMessagesWithoutAFailure(t *testing.T) {
	for _, c := range []struct {
		probes []int
		want   int
	}{
		{nil, -1},
		{[]int{0}, 0},
		{[]int{1, 0, 0}, 1},      // tried least, the first of them
		{[]int{2, -1, 0, -1}, 3}, // not failed before, the last of them
	} {
		require.Equal(t, c.want, outages.Next(c.probes, func(n int) int { return n }), c.probes)
	}
}

// With random reports, an outage begins with a failure and ends with a success, a probe that is not kept has failed
// three times, and probes are counted.
func TestOutageBeginsWithAFailureAndEndsWithASuccess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := outages.New[string](rapid.IntRange(1, 4).Draw(t, "window"),
			rapid.SampledFrom([]float64{0.3, 0.5, 1}).Draw(t, "ratio"))
		probes := map[string]int{}
		for range rapid.IntRange(1, 60).Draw(t, "attempts") {
			before, tries := o.State(), o.Tries()
			a := attempt(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "message"),
				rapid.SampledFrom([]outages.Result{outages.Succeeded, outages.Failed, outages.Failed,
					outages.Unclear}).Draw(t, "result"))
			if before != outages.Closed && rapid.Bool().Draw(t, "probe") {
				o.Wait(time.Second)
				o.Try()
				a.Probe = true
			}
			o.Report(a)
			after := o.State()
			switch {
			case before == outages.Closed && after != outages.Closed:
				clear(probes)
				require.Equal(t, outages.Failed, a.Result)
				require.True(t, o.Keeps(a.Message))
				require.Zero(t, o.Tries())
			case before != outages.Closed && after == outages.Closed:
				require.Equal(t, outages.Succeeded, a.Result)
			case before != outages.Closed && a.Probe:
				require.Equal(t, outages.Open, after)
				require.Equal(t, a.Result == outages.Failed, o.Tries() == tries+1)
				probes[a.Message]++
				require.Equal(t, probes[a.Message], o.Probes(a.Message, false))
				require.Equal(t, probes[a.Message] <= outages.FreeProbes, o.Keeps(a.Message))
			}
		}
	})
}
