package ledger

// ring has settled entries in the order in which they were settled. Each has a place, which it keeps: numbers that count up and wrap. The
// first is never one that was struck out.
type ring struct {
	items []settledEntry // as many as a power of two
	first uint32         // place
	n     int
}

type settledEntry struct {
	slot    uint32 // none if it was struck out
	settled uint64 // log.settled at its last acknowledgement
}

func (r *ring) push(e settledEntry) (place uint32) {
	if r.n == len(r.items) {
		grown := ring{make([]settledEntry, max(16, 2*r.n)), r.first, r.n}
		for i := range r.n {
			*grown.at(i) = *r.at(i)
		}
		*r = grown
	}
	place = r.first + uint32(r.n)
	r.n++
	*r.in(place) = e
	return place
}

// in returns what is in a place.
func (r *ring) in(place uint32) *settledEntry { return &r.items[place&uint32(len(r.items)-1)] }

// strike takes out what is in a place.
func (r *ring) strike(place uint32) {
	r.in(place).slot = none
	for r.n > 0 && r.at(0).slot == none {
		r.first++
		r.n--
	}
	if r.n == 0 && len(r.items) > 4096 {
		r.items = nil
	}
}

func (r *ring) at(i int) *settledEntry { return r.in(r.first + uint32(i)) }
