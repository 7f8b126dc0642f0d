package delayqueue

import "time"

// node stands for a key in the heap: the key's slot, and what orders it. The earliest key comes first; ties are in order
// of Put.
type node struct {
	at   time.Duration
	seq  uint32
	slot uint32
}

func (n node) before(other node) bool {
	return n.at < other.at || n.at == other.at && int32(n.seq-other.seq) < 0
}

// heap is a heap of four children to a node, which share a cache line: the root is at place 3, the children of i are from
// 4i-8 on. It is in pages, so that it grows and shrinks by a little at a time.
type heap struct {
	pages []*[heapPage]node
	end   uint32 // the place after the last
}

const (
	heapPage = 512
	root     = 3
)

func parent(i uint32) uint32   { return i/4 + 2 }
func children(i uint32) uint32 { return 4*i - 8 }

func (h *heap) at(i uint32) *node { return &h.pages[i/heapPage][i%heapPage] }

func (h *heap) len() int { return int(max(h.end, root) - root) }

// push makes room for one more node and returns its place.
func (h *heap) push() uint32 {
	i := max(h.end, root)
	h.end = i + 1
	if int(i/heapPage) == len(h.pages) {
		h.pages = append(h.pages, new([heapPage]node))
	}
	return i
}

// pop takes the last node off. An eighth of the pages, and one, stay when they are no longer in use.
func (h *heap) pop() node {
	h.end--
	if used := int(h.end/heapPage) + 1; used+used/8+1 < len(h.pages) {
		h.pages[len(h.pages)-1] = nil
		h.pages = h.pages[:len(h.pages)-1]
	}
	return *h.at(h.end)
}

// up moves n to where it belongs on the way from place i to the root, and reports whether that is elsewhere.
func (q *Queue[K]) up(i uint32, n node) bool {
	from := i
	for i > root {
		p := parent(i)
		above := *q.heap.at(p)
		if !n.before(above) {
			break
		}
		q.set(i, above)
		i = p
	}
	q.set(i, n)
	return i != from
}

// down moves n to where it belongs below place i.
func (q *Queue[K]) down(i uint32, n node) {
	for {
		c := children(i)
		if c >= q.heap.end {
			break
		}
		first := *q.heap.at(c)
		for other := c + 1; other < min(children(i)+4, q.heap.end); other++ {
			if o := *q.heap.at(other); o.before(first) {
				c, first = other, o
			}
		}
		if !first.before(n) {
			break
		}
		q.set(i, first)
		i = c
	}
	q.set(i, n)
}

func (q *Queue[K]) set(i uint32, n node) {
	*q.heap.at(i) = n
	q.keys.At(n.slot).Value = i
}
