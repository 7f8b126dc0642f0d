package delayqueue

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log records what a queue hands out, and when.
type log struct {
	mu   sync.Mutex
	from time.Time
	keys []int
	at   []time.Duration
}

func (l *log) due(keys []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		l.keys = append(l.keys, k)
		l.at = append(l.at, time.Since(l.from))
	}
}

func TestKeysAreDueExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{from: time.Now()}
		q := New(l.due, true)
		defer q.Close()
		assert.True(t, q.Put(3, 3*time.Second))
		assert.True(t, q.Put(1, time.Second)) // nearer than what the timer was set for
		assert.True(t, q.Put(2, time.Second))
		assert.False(t, q.Put(1, time.Millisecond), "a key keeps its due time")
		assert.True(t, q.Put(9, math.MaxInt64))
		assert.True(t, q.Put(8, 2*time.Second))
		assert.True(t, q.Remove(8))
		assert.False(t, q.Remove(8))
		assert.Equal(t, 4, q.Len())
		assert.True(t, q.Put(0, -time.Hour))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2, 3}, l.keys)
		assert.Equal(t, []time.Duration{0, time.Second, time.Second, 3 * time.Second}, l.at)
		assert.Equal(t, 1, q.Len())
		q.Clear()
		assert.Zero(t, q.Len())
	})
}

func TestCallbackMayUseTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q *Queue[int]
		n := 0
		q = New(func(keys []int) {
			n++
			q.Put(keys[0], time.Second)
			q.Remove(99)
			q.Len()
		}, false)
		q.Put(1, time.Second)
		time.Sleep(10*time.Second + time.Millisecond)
		q.Close()
		assert.Equal(t, 10, n)
	})
}

func TestCloseWaitsForTheCallbackAndEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Int32
		q := New(func([]int) {
			begun.Add(1)
			time.Sleep(time.Minute)
			ended.Add(1)
		}, false)
		q.Put(1, 0)
		q.Put(2, time.Second)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int32{1, 0}, []int32{begun.Load(), ended.Load()})
		q.Close()
		assert.Equal(t, []int32{1, 1}, []int32{begun.Load(), ended.Load()}, "Close returned during a call")
		q.Close()
		assert.False(t, q.Put(3, 0))
		assert.Zero(t, q.Len())
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, begun.Load())
	})
}

// Random operations against a map from key to due time, which is all that a queue is.
func TestQueueIsAMapOfDueTimes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			l := &log{from: time.Now()}
			q := New(l.due, true)
			defer q.Close()
			model := map[int]time.Duration{}
			now := func() time.Duration { return time.Since(l.from) }
			rt.Repeat(map[string]func(*rapid.T){
				"put": func(t *rapid.T) {
					key := rapid.IntRange(0, 50).Draw(t, "key")
					delay := time.Duration(rapid.IntRange(-10, 1000).Draw(t, "ms")) * time.Millisecond
					_, there := model[key]
					require.Equal(t, !there, q.Put(key, delay))
					if !there {
						model[key] = now() + max(0, delay)
					}
					synctest.Wait() // what is due at once goes out now
				},
				"remove": func(t *rapid.T) {
					key := rapid.IntRange(0, 50).Draw(t, "key")
					_, there := model[key]
					require.Equal(t, there, q.Remove(key))
					delete(model, key)
				},
				"clear": func(t *rapid.T) {
					if rapid.IntRange(0, 20).Draw(t, "dice") == 0 {
						q.Clear()
						clear(model)
					}
				},
				"wait": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
					synctest.Wait()
				},
				"": func(t *rapid.T) {
					l.mu.Lock()
					defer l.mu.Unlock()
					for i, key := range l.keys {
						at, there := model[key]
						require.True(t, there, "key %d came without being there", key)
						require.Equal(t, at, l.at[i], "key %d", key)
						delete(model, key)
					}
					require.IsNonDecreasing(t, append(l.at, math.MaxInt64))
					l.keys, l.at = nil, nil
					for key, at := range model {
						require.Greater(t, at, now(), "key %d did not come", key)
					}
					require.Equal(t, len(model), q.Len())
				},
			})
		})
	})
}

func TestManyKeysComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{from: time.Now()}
		q := New(l.due, true)
		defer q.Close()
		type key struct{ key, at, seq int }
		waiting := map[int]key{}
		puts := 0
		for range 20_000 {
			k, ms := rand.IntN(10_000), 1+rand.IntN(500)
			_, there := waiting[k]
			switch {
			case !there:
				require.True(t, q.Put(k, time.Duration(ms)*time.Millisecond))
			case rand.IntN(2) == 0:
				require.True(t, q.Restart(k))
				ms = waiting[k].at
			default:
				require.True(t, q.Remove(k))
				delete(waiting, k)
				continue
			}
			puts++
			waiting[k] = key{k, ms, puts}
		}
		var want []int
		for _, k := range slices.SortedFunc(maps.Values(waiting), func(a, b key) int {
			return cmp.Or(a.at-b.at, a.seq-b.seq)
		}) {
			want = append(want, k.key)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, want, l.keys)
		for i, k := range l.keys {
			require.Equal(t, time.Duration(waiting[k].at)*time.Millisecond, l.at[i])
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	var mu sync.Mutex
	got := map[int]int{}
	q := New(func(keys []int) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range keys {
			got[k]++
		}
	}, false)
	var wg sync.WaitGroup
	removed := make([]int, 4)
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				key := g*2000 + i
				q.Put(key, time.Duration(i%7)*time.Millisecond)
				if i%3 == 0 && q.Remove(key) {
					removed[g]++
				}
			}
		})
	}
	wg.Wait()
	want := 8000
	for _, n := range removed {
		want -= n
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == want }, 10*time.Second, time.Millisecond)
	q.Close()
	for key, n := range got {
		require.Equal(t, 1, n, "key %d", key)
	}
}
