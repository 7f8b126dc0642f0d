package partition

import (
	"testing"
	"time"
)

// BenchmarkAck receives and acknowledges a message, alone or in a batch.
func BenchmarkAck(b *testing.B) {
	for _, c := range []struct {
		name  string
		total int32
	}{{"single", 1}, {"batch=1000", 1000}} {
		b.Run(c.name, func(b *testing.B) {
			g := group{New(Options{Kind: Shared, MemoryLimit: 1 << 30})}
			source, object, body := any(new(int)), any(new(int)), any(new(int))
			b.ReportAllocs()
			for n := range b.N {
				now := time.Duration(n) * 10 * time.Microsecond
				id := ID{"persistent://public/default/topic", int64(n / 50_000_000), int64(n) / int64(c.total), int32(n) % c.total}
				g.Arrive(now, Copy{ID: id, Source: source, Object: object, Body: body, Total: c.total, Size: 100})
				a, _ := g.BeginAck(id)
				g.EndAck(now, &a, Done)
				g.Advance(now)
			}
		})
	}
}

// BenchmarkNack nacks a message, which waits among others and comes back.
func BenchmarkNack(b *testing.B) {
	const waiting = 10_000
	g := group{New(Options{Kind: Exclusive, MemoryLimit: 1 << 30})}
	source, object, body := any(new(int)), any(new(int)), any(new(int))
	id := func(n int) ID { return ID{"persistent://public/default/topic", 1, int64(n), 0} }
	for n := range waiting {
		g.Arrive(0, Copy{ID: id(n), Source: source, Object: object, Body: body, Total: 1, Size: 100})
		g.Nack(time.Duration(n), Failure{ID: id(n), Hand: AnyHand, Delay: waiting})
	}
	b.ReportAllocs()
	for n := range b.N {
		now := time.Duration(waiting + n)
		g.Advance(now)
		d, ok := g.Take(now, false)
		if !ok {
			b.Fatal("nothing is ready")
		}
		g.Nack(now, Failure{ID: d.ID, Hand: d.Hand, Delay: waiting})
	}
}
