package partition

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/exploretest"
)

var withMutants = flag.Bool("mutants", false, "remove each rule of the machine in turn, and see that some test fails (10 minutes)")

// mutants are the rules of the machine, and what the code is without each.
var mutants = []struct{ rule, file, with, without string }{
	{"a copy of a held message is not handed out", "arrive.go", "	case Held, Waiting, Ready:\n", "	case Held, Waiting, Ready:\n		g.deliver(now, m, c.Body, d)\n		return Deliver\n"},
	{"a copy of a settled entry is not handed out", "arrive.go", "if p.entryAt(at) == nil && p.settled.hasEntry(at) {", "if false {"},
	{"a copy of a settled message of a batch is not handed out", "ack.go", "		p.settled.addPart(e.at, e.settledIndexes())\n", ""},
	{"a copy of a settled entry is acknowledged whole", "arrive.go", "c.Object, c.Total > 1}\n", "c.Object, false}\n"},
	{"the newest delivery is acknowledged", "arrive.go", "		m.id, m.epoch = c.Object, p.reads\n", "		if m.id == nil {\n			m.id = c.Object\n		}\n		m.epoch = p.reads\n"},
	{"a copy in a new epoch makes a message fresh", "arrive.go", "		m.id, m.epoch = c.Object, p.reads\n", "		m.id = c.Object\n		m.epoch = max(m.epoch, 1)\n"},
	{"but a copy of the queue does not", "arrive.go", "m.id, m.epoch = c.Object, p.reads", "m.id, m.epoch = c.Object, g.epoch"},
	{"a copy is kept if there is room", "arrive.go", "		m.counts(c)\n		g.keep(m, c)\n		switch {", "		m.counts(c)\n		switch {"},
	{"the last ack of an entry that came twice names the whole", "ack.go", "m.entry.ack.isLast() && m.entry.ack.needsWhole(), m\n", "m.entry.ack.isLast() && false, m\n"},
	{"an entry whose newer delivery came meanwhile is acknowledged once more", "ack.go", "e.ack.isComplete() && e.ack.needsWhole() && !whole", "false && e.ack.isComplete() && !whole"},
	{"and so is a message that came while it was requested", "ack.go", "if cameAgain || ", "_ = cameAgain\n	if "},
	{"a lower index is another delivery", "entryack.go", "index <= a.last || epoch != a.epoch", "epoch != a.epoch"},
	{"a new epoch is another delivery", "entryack.go", "index <= a.last || epoch != a.epoch", "index <= a.last"},
	{"more of the current entry may come", "ack.go", "	case e == p.current && e.in[Settled] > 0: // more of it may be on its way\n		return\n", ""},
	{"an entry of which a part was settled before counts as one that came twice", "arrive.go", "				e.ack.again = true\n", ""},
	{"a busy message is not handed out when its time is over", "group.go", "		case t.Of.message.busy > 0:\n			t.Of.message.overdue = true\n", ""},
	{"a busy message is not taken", "take.go", "m.state != Ready || m.busy > 0:", "m.state != Ready:"},
	{"a message that was ready and busy is queued again", "ack.go", "	case m.state == Ready:\n		g.makeReady(now, m)\n", ""},
	{"a timer that went off while busy goes off again", "ack.go", "	case m.overdue:\n		g.clock.Set(&m.timer, now)\n", ""},
	{"a copy of an asked message is not handed out while busy", "arrive.go", "		if m.busy == 0 {\n			g.keep(m, c)\n			// A retry", "		if true {\n			g.keep(m, c)\n			// A retry"},
	{"a retry that was never handed out waits", "arrive.go", "!m.delivered || c.Tries > m.count+1", "c.Tries > m.count+1"},
	{"and is requested again if it is not settled", "ack.go", "	case m.state == Asked && m.overdue:\n		r := g.requestOf(m.entry)\n		r.open = false\n		g.send(now, r)\n", ""},
	{"a stale message is not handed out from memory", "connection.go", "	return m.epoch < max(p.floor, p.group.floor) && !p.isComing(m.place())\n", "	_ = p\n	return false\n"},
	{"a connection makes messages stale that others may have", "connection.go", "	if g.o.hasOthers() {\n		g.floor = g.epoch\n	}\n", ""},
	{"and nothing where no other can have it", "connection.go", "	if g.o.hasOthers() {\n		g.floor = g.epoch\n	}\n", "	g.floor = g.epoch\n"},
	{"a partition that becomes inactive is stale", "connection.go", "		p.floor = g.epoch\n", ""},
	{"Take passes a stale message", "take.go", "		case m.isStale():\n			g.ask(now, m)\n", ""},
	{"a copy that was sent before a partition became active is dropped", "connection.go", "	if p.reads < p.active { //", "	if false { //"},
	{"an operator's mark is awaited again in each epoch", "marks.go", "	if m.epoch != epoch {", "	if len(m.objects) == 0 {"},
	{"a copy that was sent before it became inactive is dropped too", "connection.go", "	p.active, p.gap = g.epoch, gap{}\n", "	if active {\n		p.active, p.gap = g.epoch, gap{}\n	}\n"},
	{"and requested", "connection.go", "		m.id, m.count = c.Object, c.count(0)\n		g.expect(now, m)\n", ""},
	{"a request makes a batch stale", "request.go", "			m.epoch = 0\n", "			m.epoch += 0\n"},
	{"a message that the broker sends again by itself is requested if it does not come", "request.go", "		r.open, r.mark = true, g.reading.at(now)\n		g.clock.Set(&r.timer, now+r.pause())\n", ""},
	{"a message in the queue is not requested", "request.go", " && !r.partition.isComing(m.place())", ""},
	{"nor handed out twice", "connection.go", "p.isComing(at) || ", ""},
	{"unless a later copy was read before it", "connection.go", "return c.number > p.read ", "return c.number > 0 "},
	{"or none came for a while", "connection.go", " && p.group.reading.idleAt < c.at+idleTime", ""},
	{"a copy that a later one passed is requested", "connection.go", "	if passed {\n		p.requestDropped(now)\n	}\n", "	_ = passed\n"},
	{"a copy that follows a gap is dropped where the broker rewinds", "connection.go", " || p.isAfterGap(at, object)", ""},
	{"also if it was dropped since it was sent before the partition became active", "connection.go", "		p.gap.widen(at)\n		p.gap.last = at\n", ""},
	{"and a copy that the broker sent before it rewound", "connection.go", "	if newer, sent := p.coming[at]; x.open && sent && p.isQueued(newer) {\n", "	if false {\n"},
	{"and one that did not come while none came", "turn.go", "		p.requestDropped(now)\n", ""},
	{"and waits until then", "request.go", "		r.open = false\n		g.await(now, r)\n", "		g.await(now, r)\n"},
	{"then it is requested", "request.go", " && !r.isMissing()", ""},
	{"and it is fresh", "connection.go", " && !p.isComing(m.place())", ""},
	{"a request is open until it is answered", "request.go", "	case !r.open:\n		g.send(now, r)\n", "	default:\n		g.send(now, r)\n"},
	{"a request is repeated", "request.go", "r.partition.sendAgain(first.id)\n	g.clock.Set(&r.timer, now+r.pause())\n", "r.partition.sendAgain(first.id)\n"},
	{"not while an answer may be in the queue", "request.go", "r.open && silent < r.pause() && ", "r.open && silent < 0 && "},
	{"an answer is over at the furthest message", "request.go", "	if r.begun && at == p.top {\n		g.answered(now, r)\n	}\n", ""},
	{"a message that the answer had passed is requested at once", "request.go", "		r.more = true\n", ""},
	{"an answer begins with a message that is not after the last", "request.go", "		r.begun = r.open\n", "		r.begun = false\n"},
	{"a request ends with its last message", "request.go", "	r.tries = 0\n	if r.asked() == 0 {\n		r.end()\n	}\n", "	r.tries = 0\n"},
	{"pauses begin again with each answer", "request.go", "	r.tries = 0\n	if r.asked()", "	if r.asked()"},
	{"a message that is requested in vain is forgotten", "request.go", "	case r.tries >= inVain && p.isAnswering():\n		g.giveUpAsked(now, r)\n", ""},
	{"not while its partition may be away", "request.go", "r.tries >= inVain && p.isAnswering():", "r.tries >= inVain:"},
	{"a nack of an earlier hand-over is ignored", "nack.go", "	if !m.isWith(f.Hand) {", "	if !m.isWith(AnyHand) {"},
	{"hand-overs have numbers from the second on", "take.go", "		m.hand = g.hands\n", ""},
	{"and from the first on if the broker delivered the message before", "take.go", "if m.delivered || m.count > 0 {", "if m.delivered {"},
	{"each hand-over counts", "take.go", "			m.count += min(1, ^m.count)\n", ""},
	{"a snoozed one does not", "take.go", "		if !m.uncounted {\n", "		if true {\n"},
	{"the broker's count counts if it is larger", "take.go", "		m.count = max(m.count, m.broker)\n", ""},
	{"but of no batch", "arrive.go", "	if !m.entry.isBatch() {\n", "	if true {\n"},
	{"a message that was never delivered is not counted", "take.go", "	if m.delivered {\n		if !m.uncounted", "	if true {\n		if !m.uncounted"},
	{"a message that may not come yet waits", "arrive.go", "		if c.Wait <= 0 {", "		if true {"},
	{"a message that did not fail stays", "take.go", "m.fails() && g.isBetter", "g.isBetter"},
	{"an ack timeout sends a message to another consumer", "take.go", "	return m.timedOut || ", "	return "},
	{"so does the last delivery", "take.go", "g.o.isLast(m.count+1) || ", ""},
	{"and an application that mostly fails", "take.go", " || g.outcomes.mostlyFail()", ""},
	{"which it does too when messages are published elsewhere", "ack.go", "outcome == Moved)", "false)"},
	{"and a key that has failed for long", "take.go", " ||\n		g.o.Kind == KeyShared && m.firstFailed > 0 && now-m.firstFailed >= readyKeyShared", ""},
	{"and a message that the application does not take", "take.go", "	if g.o.hasOthers() {\n		g.clock.Set(&m.timer, now+g.readyTime())\n	}\n", ""},
	{"but no snoozed message", "take.go", "g.o.hasOthers() && !m.fromHere && ", "g.o.hasOthers() && "},
	{"and no batch with a message at work", "take.go", "e.in[Held] == 0 && e.busy == 0 && ", ""},
	{"and no batch with a message that is being settled", "take.go", " && e.busy == 0 && ", " && "},
	{"and no batch with a settled message", "take.go", " && (e.in[Settled] == 0 || g.o.IndexAcks == KeptIndexAcks)", ""},
	{"unless the broker knows that", "take.go", "(e.in[Settled] == 0 || g.o.IndexAcks == KeptIndexAcks)", "e.in[Settled] == 0"},
	{"new messages and those that come back alternate", "take.go", "	if g.newsTurn && isNew {", "	if false {"},
	{"settled ids outlive a lost connection", "connection.go", "	g.beginEpoch(now)\n	if g.o.hasOthers()", "	g.beginEpoch(now)\n	for _, p := range g.partitions {\n		clear(p.settled.generations[:])\n	}\n	if g.o.hasOthers()"},
	{"an operator who moves the cursor back is obeyed", "connection.go", "	p.settled.forgetSure()\n", ""},
	{"but only when the queue of that time was read", "connection.go", "		p.resets.add(object, g.epoch)\n", "		p.settled.forgetSure()\n"},
	{"an acknowledgement is sure after a while", "connection.go", "p.settled.isSure(id.position())", "p.settled.hasEntry(id.position())"},
	{"none becomes surer after a loss", "turn.go", "	case p.calm == g.epoch:\n", "	default:\n"},
	{"before the partition was heard of", "turn.go", "p.sent == g.epoch && g.connected", "g.connected"},
	{"and its queue was empty for a while", "turn.go", " && g.reading.idleAt >= p.sentAt+idleTime", ""},
	{"none becomes surer before the connection is back", "turn.go", " && g.connected == g.epoch &&", " &&"},
	{"requests that no hand-over followed do not count", "arrive.go", "		m.excess += g.requestOf(m.entry).excess(m.delivered)\n", ""},
	{"one of the requests after a failure does", "request.go", "	case delivered:\n		return uint32(r.tries - 1)\n", ""},
	{"nor while another consumer is active", "request.go", " && (p.active == 0 || p.floor < p.active)", ""},
	{"requests without a connection do not count", "request.go", "		r.tries = min(r.tries, inVain-1)\n", ""},
	{"the cursor does not move while all is calm", "connection.go", "	if p.calm == g.epoch {\n		return\n	}\n	p.sending", "	p.sending"},
	{"a bare id of a shared ledger is refused", "group.go", "	if known && p == nil {\n		return nil, ErrAmbiguous\n	}\n", "	if known && p == nil {\n		for _, p = range g.partitions {\n			return p, nil\n		}\n	}\n"},
	{"memory is limited", "memory.go", "	if g.memory+needs > g.o.MemoryLimit {\n		return\n	}\n", ""},
	{"a batch counts once", "memory.go", "	if e.kept == 0 {\n		needs += c.Buffer\n	}\n", "	needs += c.Buffer\n"},
	{"a settled message needs no memory", "ack.go", "	g.drop(m)\n	m.move(Settled)", "	m.move(Settled)"},
	{"nor does a requested one", "request.go", "	g.drop(m)\n	g.clock.Stop", "	g.clock.Stop"},
	{"the last delivery that times out is given up here", "nack.go", "	if d.Last && m.body != nil && !m.isStale() {", "	if false {"},
	{"a transaction that is aborted keeps the delay", "arrive.go", "		case now < m.due: // it was aborted, and its delay goes on\n			g.wait(now, m, m.due)\n", ""},
	{"and hands the message out again", "arrive.go", "		case !m.undecided || m.busy > 0:\n", "		case true:\n"},
	{"a transaction is forgotten", "nack.go", "	if m.undecided {\n		g.forget(now, m)\n		return\n	}\n", ""},
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (Test\S+)`)

func TestReadmeListsTheRules(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var listed, rules []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.+) \| .+ \|$`).FindAllStringSubmatch(string(text), -1)[1:] {
		listed = append(listed, row[1])
	}
	for _, m := range mutants {
		rules = append(rules, m.rule)
	}
	require.Equal(t, rules, listed)
}

// TestMutants removes each rule and sees that another test of this package fails. It prints which one did.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.rule, " ", "-"), func(t *testing.T) {
			mutant := exploretest.Mutant{Rule: m.rule, File: m.file, With: m.with, Without: m.without}
			mutant.Check(t)
			if !*withMutants {
				return
			}
			out := mutant.Test(t, "-timeout=120s", "-skip", "TestMutants", ".", "-args", fmt.Sprintf("-deeper=%d", *deeper))
			by := []string{}
			for _, f := range failed.FindAllStringSubmatch(out, -1) {
				if f[1] != "TestExploration" && f[1] != "TestTable" {
					by = append(by, strings.TrimPrefix(f[1], "TestExploration/"))
				}
			}
			t.Logf("%s: noticed by %s", m.rule, strings.Join(by[:min(1, len(by))], ", "))
		})
	}
}
