package attempts

import (
	"math"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The writer's clock is a minute behind or ahead. The first frame that is read live, just after it was written, shows
// how far the clock is off. Then the Log corrects the due times of records that it read earlier.
func TestDueTimesAreCorrectedForAWrongClock(t *testing.T) {
	for _, off := range []int64{-60_000, 60_000} {
		s := newState()
		change := []change{{Key: one, count: 1, delay: 5_000, session: 7}}
		s.apply(readFrame{frame: frame{session: 7, changes: change}, at: position{1, 1}, time: 100_000 + off, now: 101_000})
		r, _ := s.find(one)
		require.EqualValues(t, 105_000+off, r.due, "the due time was corrected before the writer's clock was known")
		s.apply(readFrame{frame: frame{session: 7}, at: position{1, 2}, time: 102_000 + off, now: 102_003, live: true})
		r, _ = s.find(one)
		require.EqualValues(t, 105_003, r.due, "the due time is not late by the 3 ms that the frame was under way")
	}
}

// The first frame of a session was under way for 5 ms, so its later frames seem to be written 5 ms late. A failure
// without a delay is due nevertheless when it is read: otherwise later messages of its key would overtake it.
func TestFailureWithoutDelayIsDueWhenItIsRead(t *testing.T) {
	s := newState()
	s.apply(readFrame{frame: frame{session: 7}, at: position{1, 1}, time: 100_000, now: 100_005, live: true})
	change := []change{{Key: one, count: 1, session: 7}, {Key: two, count: 1, delay: 1, session: 7}}
	s.apply(readFrame{frame: frame{session: 7, changes: change}, at: position{1, 2}, time: 101_000, now: 101_001, live: true})
	r, _ := s.find(one)
	require.Less(t, r.due, int64(101_001))
	r, _ = s.find(two)
	require.EqualValues(t, 101_006, r.due, "a failure with a delay is early")
}

// Frames have times in milliseconds. The clocks of the writer, the broker and this machine may differ by fractions of a
// millisecond, and a frame may be read at once.
func TestRoundingMakesNoMessageEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		off := time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "off"))
		s := newState()
		apply := func(entry int64, published time.Time, changes ...change) {
			way := time.Duration(rapid.Int64Range(0, 1e5).Draw(t, "way"))
			r := readAt(published.Add(way), frame{session: 7, changes: changes},
				publishedAt{at: published.Add(off), broker: rapid.Bool().Draw(t, "broker")})
			r.at, r.live = position{1, entry}, true
			s.apply(r)
		}
		at := time.Now().Add(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "at")))
		apply(1, at)
		at = at.Add(time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "later")))
		apply(2, at, change{Key: one, count: 1, delay: 5_000, session: 7})
		r, _ := s.find(one)
		require.False(t, moment(r.due).Before(at.Add(5*time.Second)), "early by %v",
			at.Add(5*time.Second).Sub(moment(r.due)))
	})
}

type publishedAt struct {
	pulsar.Message
	at     time.Time
	broker bool
}

func (m publishedAt) ID() pulsar.MessageID   { return pulsar.EarliestMessageID() }
func (m publishedAt) PublishTime() time.Time { return m.at }
func (m publishedAt) BrokerPublishTime() *time.Time {
	if m.broker {
		return &m.at
	}
	return nil
}

func TestOnlyTheBrokersClockCountsIfMessagesHaveItsTime(t *testing.T) {
	for _, off := range []int64{-60_000, 60_000} {
		s := newState()
		change := []change{{Key: one, count: 1, delay: 5_000, session: 7}}
		s.apply(readFrame{frame: frame{session: 7, changes: change}, at: position{1, 1}, time: 100_000 + off, now: 101_000,
			broker: true})
		s.apply(readFrame{frame: frame{session: 8, flags: begins}, at: position{1, 2}, time: 102_000 + off, now: 102_003,
			live: true, broker: true})
		r, _ := s.find(one)
		require.EqualValues(t, 105_003, r.due)
		s.apply(readFrame{frame: frame{session: 8}, at: position{1, 3}, time: 103_000 + off, now: 103_900, live: true,
			broker: true})
		r, _ = s.find(one)
		require.EqualValues(t, 105_003, r.due, "a slow frame changed a due time")
	}
}

// A clock was set. Messages may be early until several frames in a row seem late. A single slow frame changes nothing.
func TestDueTimesAreCorrectedAfterAClockWasSet(t *testing.T) {
	for name, behind := range map[string]readFrame{
		"the writer's was ahead":               {time: 112_000, now: 102_000},
		"the reader's was behind":              {time: 102_000, now: 92_000},
		"the broker's was ahead":               {time: 112_000, now: 102_000, broker: true},
		"the reader's was behind the broker's": {time: 102_000, now: 92_000, broker: true},
	} {
		s := newState()
		behind.frame, behind.at, behind.live = frame{session: 7,
			changes: []change{{Key: one, count: 1, delay: 60_000, session: 7}}}, position{1, 1}, true
		s.apply(behind)
		due := func() int64 { r, _ := s.find(one); return r.due }
		early := behind.time - 10_000 + 60_000 // by the clock before it was set
		require.Equal(t, early, due(), name)
		for i := range int64(7) {
			s.apply(readFrame{frame: frame{session: 7}, at: position{1, 2 + i}, time: behind.now + 20_000 + i,
				now: behind.now + 20_100 + 3*i, live: true, broker: behind.broker})
		}
		s.apply(readFrame{frame: frame{session: 7}, at: position{1, 20}, time: behind.now + 30_000, now: behind.now + 30_050,
			live: true, broker: behind.broker})
		require.Equal(t, early+10_050, due(), name)
		s.apply(readFrame{frame: frame{session: 7}, at: position{1, 30}, time: behind.now + 40_000, now: behind.now + 49_000,
			live: true, broker: behind.broker})
		require.Equal(t, early+10_050, due(), name)
	}
}

// The times of a session's own messages have Go's monotonic reading.
func TestSettingTheClockChangesNoDelayOfOwnMessages(t *testing.T) {
	l := openReady(t, testClient(t), testTopic(t), "a")
	l.Failed(one, 1, time.Hour, "no coffee")
	await(t, func() bool { return l.Stats().Lag == 0 })
	r, ok := l.Find(one)
	require.True(t, ok)
	require.Contains(t, r.Due.String(), " m=+", "no monotonic reading")
	require.InDelta(t, time.Hour.Seconds(), time.Until(r.Due).Seconds(), 3)
	require.InDelta(t, time.Hour.Seconds(), r.Due.Sub(r.Written).Seconds(), 3)
	for _, s := range l.Sessions() {
		require.Contains(t, s.Heard.String(), " m=+")
	}
	require.Greater(t, time.Until(moment(math.MaxInt64/4)), 99*365*24*time.Hour)
	require.Less(t, time.Until(moment(math.MinInt64/4)), -99*365*24*time.Hour)
}

// A session has copied another session's record. The times in the new frame are by the clock of the session that
// copied.
func TestTimesOfACopyAreByTheClockOfTheSessionThatCopied(t *testing.T) {
	for _, off := range []int64{-60_000, 60_000} {
		s := newState()
		f := frame{session: 8, flags: copies, asOf: position{1, 1},
			changes: []change{{Key: one, count: 1, delay: 5_000, session: 7}}}
		s.apply(readFrame{frame: f, at: position{1, 2}, time: 100_000 + off, now: 200_000})
		s.apply(readFrame{frame: frame{session: 8}, at: position{1, 3}, time: 200_000 + off, now: 200_003, live: true})
		r, _ := s.find(one)
		require.EqualValues(t, 105_003, r.due)
		s.apply(readFrame{frame: frame{session: 7}, at: position{1, 4}, time: 200_000, now: 200_010, live: true})
		r, _ = s.find(one)
		require.EqualValues(t, 105_003, r.due, "not by the clock of the session that copied the record")
	}
}
