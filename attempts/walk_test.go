package attempts

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// walk writes a world as bytes. Worlds with equal bytes have equal futures. walk numbers pointers in the order in which
// it meets them. Times are relative to now. Of numbers that only grow, such as epochs and positions in the log, walk
// writes only the order.
type walk struct {
	b     []byte
	now   time.Duration        // time of the Groups
	at    int64                // time of the Logs
	total int64                // reading.total of the present Group
	met   map[uintptr]int      // numbers of the pointers
	ranks map[string][]growing // numbers that only grow, by name
}

// growing is a number that only grows. Only its order among the numbers with the same name counts.
type growing struct{ high, low int64 }

func (a growing) compare(b growing) int {
	return cmp.Or(cmp.Compare(a.high, b.high), cmp.Compare(a.low, b.low))
}

// grows has the fields whose numbers only grow, each with the name of the numbers that it is compared with.
var grows = map[string]string{
	"order": "order", "number": "number", "begun": "number",
	"epoch": "epoch", "floor": "epoch", "activeEpoch": "epoch", "readEpoch": "epoch", "sentEpoch": "epoch",
	"calmEpoch": "epoch",
}

// skipped are fields that do not affect the future of the worlds: values for observers, storage, and values that matter
// only after 18 failures.
var skipped = map[string]bool{
	"message.heldSince": true, "message.heldFor": true, "message.waitsSince": true, "message.due": true, "message.cause": true,
	"message.note": true, "message.firstFailed": true, "Group.lossAt": true, "Group.latest": true, "Group.spare": true,
	"Group.outcomes": true, "entry.block": true, "reading.total": true, "entryAck.settledAt": true, "entryAck.settledIn": true,
	"Log.client": true, "Log.o": true, "Log.opened": true, "Log.life": true, "Log.end": true, "Log.stats": true,
	"Log.reportedSlow": true, "Log.most": true, "Log.mu": true, "Log.once": true, "state.since": true,
	"world.kind": true, "world.frames": true, "world.truths": true, "world.began": true, "process.w": true,
}

const (
	epochBegins = int64(1e11) // milliseconds: an int64 of this size is a moment
	longAgo     = 2 * time.Minute
)

var walkSeed = maphash.MakeSeed()

// hash returns a number for the state of a world.
func (x *walk) hash(w *world) uint64 {
	x.b, x.now, x.at = x.b[:0], w.now(), now()
	x.met, x.ranks = map[uintptr]int{}, map[string][]growing{}
	x.value(reflect.ValueOf(w).Elem(), "")
	view, frames := w.view()
	x.value(reflect.ValueOf(view), "")
	x.value(reflect.ValueOf(frames), "")
	for _, p := range w.processes {
		if p != nil {
			x.value(reflect.ValueOf(w.frames[p.framesRead:]), "")
		}
	}
	for _, name := range []string{"order", "number", "epoch", "position"} {
		all := x.ranks[name]
		sorted := append(slices.Clone(all), growing{})
		slices.SortFunc(sorted, growing.compare)
		sorted = slices.Compact(sorted)
		for _, v := range all {
			rank, _ := slices.BinarySearchFunc(sorted, v, growing.compare)
			x.int(int64(rank))
		}
	}
	return maphash.Bytes(walkSeed, x.b)
}

func (x *walk) int(v int64) { x.b = binary.AppendVarint(x.b, v) }

func (x *walk) grow(name string, v growing) { x.ranks[name] = append(x.ranks[name], v) }

func (x *walk) value(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Bool:
		x.b = append(x.b, 0)
		if v.Bool() {
			x.b[len(x.b)-1] = 1
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		x.number(v, name)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if of := grows[name]; of != "" && v.Type() == reflect.TypeFor[uint64]() {
			x.grow(of, growing{int64(v.Uint()), 0})
		} else {
			x.int(int64(v.Uint()))
		}
	case reflect.String:
		x.int(int64(v.Len()))
		x.b = append(x.b, v.String()...)
	case reflect.Pointer:
		x.pointer(v)
	case reflect.Interface:
		if v.IsNil() {
			x.int(-1)
		} else {
			x.value(v.Elem(), name)
		}
	case reflect.Slice, reflect.Array:
		x.int(int64(v.Len()))
		for i := range v.Len() {
			x.value(v.Index(i), "")
		}
	case reflect.Map:
		x.mapping(v)
	case reflect.Struct:
		x.fields(v)
	}
}

func (x *walk) number(v reflect.Value, name string) {
	n := v.Int()
	switch {
	case n == 0:
	case name == "readingWhenSent" || name == "readingWhenCopyCame":
		n -= x.total
	case v.Type() == reflect.TypeFor[time.Duration]() && name != "timeout":
		n = max(n-int64(x.now), -int64(longAgo))<<1 | 1
	case v.Kind() == reflect.Int64 && n > epochBegins:
		n = max(n-x.at, -longAgo.Milliseconds())<<1 | 1
	}
	x.int(n)
}

func (x *walk) pointer(v reflect.Value) {
	if v.IsNil() {
		x.int(-1)
		return
	}
	n, met := x.met[v.Pointer()]
	if !met {
		n = len(x.met)
		x.met[v.Pointer()] = n
	}
	x.int(int64(n))
	if !met {
		x.value(v.Elem(), "")
	}
}

func (x *walk) mapping(v reflect.Value) {
	x.int(int64(v.Len()))
	keys := v.MapKeys()
	slices.SortFunc(keys, compareKeys)
	for _, k := range keys {
		x.value(k, "")
		x.value(v.MapIndex(k), "")
	}
}

// compareKeys orders keys of maps: structs by their fields.
func compareKeys(a, b reflect.Value) int {
	switch a.Kind() {
	case reflect.String:
		return strings.Compare(a.String(), b.String())
	case reflect.Int, reflect.Int32, reflect.Int64:
		return cmp.Compare(a.Int(), b.Int())
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return cmp.Compare(a.Uint(), b.Uint())
	case reflect.Struct:
		for i := range a.NumField() {
			if c := compareKeys(a.Field(i), b.Field(i)); c != 0 {
				return c
			}
		}
	}
	return 0
}

func (x *walk) fields(v reflect.Value) {
	f := fieldsOf(v.Type())
	switch {
	case f.isPosition:
		x.grow("position", growing{v.Field(0).Int(), v.Field(1).Int()})
		return
	case f.slot >= 0 && v.Field(f.slot).IsZero(): // a timer that is not set
		return
	case f.reading >= 0:
		x.total = v.Field(f.reading).FieldByName("total").Int()
	}
	for _, i := range f.all {
		x.value(v.Field(i.index), i.name)
	}
}

// fields has the fields of a struct that matter.
type fields struct {
	all        []field
	isPosition bool // of the log
	slot       int  // index of a timer's field slot, or −1
	reading    int  // index of a Group's field reading, or −1
}

type field struct {
	index int
	name  string
}

var fieldsOfTypes sync.Map

func fieldsOf(t reflect.Type) *fields {
	if known, ok := fieldsOfTypes.Load(t); ok {
		return known.(*fields)
	}
	f := &fields{isPosition: t == reflect.TypeFor[position](), slot: -1, reading: -1}
	isTimer := strings.HasPrefix(t.Name(), "Timer[")
	for i := range t.NumField() {
		name := t.Field(i).Name
		switch {
		case skipped[t.Name()+"."+name]:
			continue
		case isTimer && name == "slot":
			f.slot = i
		case t.Name() == "Group" && name == "reading":
			f.reading = i
		}
		f.all = append(f.all, field{i, name})
	}
	fieldsOfTypes.Store(t, f)
	return f
}
