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

var withMutants = flag.Bool("mutants", false, "remove each rule of the machine in turn, and check that a test fails (20 minutes)")

// mutants are the rules of the machine, each with the code that replaces it.
var mutants = []struct{ rule, file, with, without string }{
	{"a copy of a held message is not handed out", "arrive.go", "	case Held, Waiting, Ready:\n", "	case Held, Waiting, Ready:\n		g.deliver(now, m, c.Body, d)\n		return Deliver\n"},
	{"a copy of a settled entry is not handed out", "arrive.go", "if p.isComplete(e, at.position) {", "if false {"},
	{"a copy of a settled entry is not handed out while a call settles a message of it", "arrive.go", "		return e.ack.isComplete()\n", "		return false\n"},
	{"a copy of a settled message of a batch is not handed out", "ack.go", "		p.settled.addPart(e.at, e.settledIndexes())\n", ""},
	{"a copy of a settled entry is acknowledged whole", "arrive.go", "c.Object, c.Total > 1}\n", "c.Object, false}\n"},
	{"the newest delivery is acknowledged", "arrive.go", "		m.id, m.epoch = c.Object, epoch\n", "		if m.id == nil {\n			m.id = c.Object\n		}\n		m.epoch = epoch\n"},
	{"a copy in a new epoch makes a message fresh", "arrive.go", "		m.id, m.epoch = c.Object, epoch\n", "		m.id = c.Object\n		m.epoch = max(m.epoch, 1)\n"},
	{"a copy that was sent before the last loss leaves its message stale", "arrive.go", "m.id, m.epoch = c.Object, epoch", "m.id, m.epoch = c.Object, g.epoch"},
	{"a copy is kept if there is room", "arrive.go", "		m.takeCount(c)\n		g.keep(m, c)\n		switch {", "		m.takeCount(c)\n		switch {"},
	{"the last ack of an entry that came twice names the whole entry", "ack.go", "m.entry.ack.isLast() && m.entry.ack.needsWhole(), m\n", "m.entry.ack.isLast() && false, m\n"},
	{"a cumulative ack that completes an entry that came twice is followed by one of the whole entry", "ack.go", "x.Whole && at == to", "false && x.Whole && at == to"},
	{"an entry that came again during its last ack is acknowledged once more", "ack.go", "of.isComplete() && of.needsWhole() && !a.Whole", "false && of.isComplete() && !a.Whole"},
	{"a newer delivery that comes during an ack is acknowledged, too", "ack.go", "m.id != a.Object || ", ""},
	{"a lower index begins another delivery of an entry", "entryack.go", "index <= a.last || epoch != a.epoch", "epoch != a.epoch"},
	{"a new epoch begins another delivery of an entry", "entryack.go", "index <= a.last || epoch != a.epoch", "index <= a.last"},
	{"an entry counts as one that came twice if a copy of it was dropped", "arrive.go", "			e.ack.repeated = true\n			g.dropOld", "			g.dropOld"},
	{"an entry stays in the table while more of it may come", "ack.go", "	case e == p.current && e.in[Settled] > 0: // more messages of it may be on their way\n		return\n", ""},
	{"an entry that comes again after a part of it was settled counts as one that came twice", "arrive.go", "				e.ack.repeated = true\n", ""},
	{"a busy message is not handed out when its time is over", "due.go", "		case t.Of.message.busy > 0: // resume sets the timer again\n", ""},
	{"a busy message is not taken", "take.go", "m.state != Ready || m.busy > 0:", "m.state != Ready:"},
	{"a message that was ready and busy is queued again", "ack.go", "	case m.state == Ready:\n		g.makeReady(now, m)\n", ""},
	{"a timer that went off while its message was busy goes off again", "ack.go", "	case hadTimer && !m.timer.IsSet(): //", "	case hadTimer && false: //"},
	{"a delay that began while its message was busy does not end early", "ack.go", "hadTimer && !m.timer.IsSet()", "hadTimer"},
	{"a copy of an asked message is not handed out while the message is busy", "arrive.go", "		if m.busy > 0 || wait > 0 {", "		if wait > 0 {"},
	{"a requested retry that was never handed out waits when it comes", "arrive.go", "if m.delivered && c.Tries <= m.count+1 {", "if c.Tries <= m.count+1 {"},
	{"a message whose request was given up while it was busy is requested again if it is not settled", "ack.go", "	case m.state == Asked:\n		g.ask(now, m) //", "	case m.state == Asked: //"},
	{"a stale message is not handed out from memory", "connection.go", "	return m.epoch < max(p.floor, p.group.floor) && !p.isComing(m.place())\n", "	_ = p\n	return false\n"},
	{"a lost connection makes messages stale that other consumers may have", "connection.go", "	if g.o.hasOthers() {\n		g.floor = g.epoch\n	}\n", ""},
	{"a lost connection makes no message stale that no other consumer can have", "connection.go", "	if g.o.hasOthers() {\n		g.floor = g.epoch\n	}\n", "	g.floor = g.epoch\n"},
	{"the messages of a partition that becomes inactive are stale", "connection.go", "		p.floor = g.epoch\n", ""},
	{"Take requests a stale message and hands out the next one", "take.go", "		case m.isStale():\n			g.ask(now, m)\n", ""},
	{"a copy that was sent before a partition became active is dropped", "connection.go", "	if epoch < p.activeEpoch || p.isInactive() { //", "	if false { //"},
	{"a copy that was sent before a partition became inactive is dropped", "connection.go", "	p.activeEpoch, p.gap = g.epoch, gap{}\n", "	if active {\n		p.activeEpoch, p.gap = g.epoch, gap{}\n	}\n"},
	{"an inactive consumer awaits no message whose first copy it dropped", "connection.go", "	case m.state == Unseen && p.isInactive(): // the active consumer gets it\n		g.forget(now, m)\n", ""},
	{"a message whose first copy was dropped is requested if no other copy comes", "connection.go", "		m.id, m.count = c.Object, c.count(0)\n		g.expect(now, m)\n", ""},
	{"a request for a message makes its whole batch stale", "request.go", "			m.epoch = 0\n", "			m.epoch += 0\n"},
	{"a message that the broker should send again by itself is requested if it does not come", "request.go", "		r.open, r.readingWhenSent = true, g.reading.at(now)\n		g.clock.Set(&r.timer, now+r.pause())\n", ""},
	{"a message in upstream's queue is not requested", "request.go", " && !r.partition.isComing(m.place())", ""},
	{"an old copy is dropped if a newer one is in upstream's queue", "connection.go", "p.isComing(at) || ", ""},
	{"a copy does not count as queued once a later one was read", "connection.go", "return c.number > p.lastRead ", "return c.number > 0 "},
	{"a copy does not count as queued once the application waited in vain", "connection.go", " && p.group.reading.idleAt < c.at+idleTime", ""},
	{"a copy that was not read is requested once a later one was read", "connection.go", "	if passed {\n		p.requestDropped(now, c.epoch)\n	}\n", "	_ = passed\n"},
	{"a copy that follows a gap is dropped where the broker rewinds", "connection.go", " || p.isAfterGap(at, object)", ""},
	{"a copy that is dropped because it was sent before activation leaves a gap", "connection.go", "		p.gap.widen(at)\n		p.gap.last = at\n", ""},
	{"where the broker rewinds, a newer copy does not hide that an older one was dropped", "connection.go", "			c = copies[0]\n", ""},
	{"a dropped copy of a message in a transaction is requested", "connection.go", "m.state != Asked && !m.undecided:", "m.state != Asked:"},
	{"an old copy of a message in a transaction is requested", "connection.go", "		p.addRequest(c.Object)\n", ""},
	{"copies that did not come while the application waited are requested", "aging.go", "		if p.requestDropped(now, anyEpoch) {", "		if false {"},
	{"acknowledgements are in doubt while dropped copies are requested", "aging.go", "			p.sentEpoch = 0 ", "			_ = 0 "},
	{"a request waits while its messages are in upstream's queue", "request.go", "		r.open = false\n		g.await(now, r)\n", "		g.await(now, r)\n"},
	{"an awaited message that is not in upstream's queue is requested", "request.go", " && !r.isMissing()", ""},
	{"a message with a newer copy in upstream's queue is fresh", "connection.go", "p.group.floor) && !p.isComing(m.place())", "p.group.floor)"},
	{"a stale message that is taken back keeps a larger count of the application", "nack.go", "	m.count = max(m.count, d.Count)\n", ""},
	{"a stale message that is taken back does not count", "nack.go", "	m.uncounted, m.cause, m.timeout = true, d.Cause, 0\n", "	m.cause, m.timeout = d.Cause, 0\n"},
	{"a withdrawn message comes before later ones", "nack.go", "		g.ready = slices.Insert(g.ready, 0, m)\n", "		g.ready = append(g.ready, m)\n"},
	{"a withdrawn message comes before new ones", "nack.go", "		g.newIsNext = false\n", ""},
	{"a withdrawn message does not count", "nack.go", "	m.uncounted, m.cause = true, d.Cause\n	if m.body == nil", "	m.cause = d.Cause\n	if m.body == nil"},
	{"a withdrawn message is kept though there is no room", "nack.go", "		m.body = d.Body\n		m.entry.kept++\n", ""},
	{"a message that is given back comes again", "connection.go", "				g.waitUntil(now, m, now)\n", ""},
	{"a message that is given back does not count", "connection.go", "				m.uncounted = true\n", ""},
	{"the ack of a whole batch settles messages that have not come", "ack.go", "		e.ack.settled = e.ack.total\n", ""},
	{"a request is open until it is answered", "request.go", "	case !r.open:\n		g.sendRequest(now, r)\n", "	default:\n		g.sendRequest(now, r)\n"},
	{"a request is repeated", "request.go", "r.partition.addRequest(first.id)\n	g.clock.Set(&r.timer, now+r.pause())\n", "r.partition.addRequest(first.id)\n"},
	{"a request is not repeated while its answer may be in upstream's queue", "request.go", "r.open && silent < r.pause() && ", "r.open && silent < 0 && "},
	{"an answer ends with the furthest message that ever came", "request.go", "	if r.answering && at == p.top {\n		g.answerOver(now, r)\n	}\n", ""},
	{"a message that became due behind the answer is requested when the answer ends", "request.go", "		r.needsAnother = true\n", ""},
	{"an answer begins with a message that is not after the previous one", "request.go", "		r.answering = r.open\n", "		r.answering = false\n"},
	{"a request ends when the last message that waits for it comes", "request.go", "	r.tries = 0\n	if r.asked() == 0 {\n		r.end()\n	}\n", "	r.tries = 0\n"},
	{"each answer resets the pause between requests", "request.go", "	r.tries = 0\n	if r.asked()", "	if r.asked()"},
	{"a message that is requested in vain is forgotten", "request.go", "	case r.tries >= inVain && p.isReachable():\n		g.forgetAsked(now, r)\n", ""},
	{"a message that is requested in vain is kept while its partition may be away", "request.go", "r.tries >= inVain && p.isReachable():", "r.tries >= inVain:"},
	{"a nack of an earlier hand-over is ignored", "nack.go", "	if !m.isWith(f.Hand) {", "	if !m.isWith(AnyHand) {"},
	{"hand-overs have numbers from the second on", "take.go", "		m.hand = g.hands\n", ""},
	{"the first hand-over has a number if the broker delivered the message before", "take.go", "if m.delivered || m.count > 0 {", "if m.delivered {"},
	{"each hand-over after the first raises the count", "take.go", "			m.count += min(1, ^m.count) // without overflow\n", ""},
	{"the hand-over after a snooze does not raise the count", "take.go", "		if !m.uncounted {\n", "		if true {\n"},
	{"a larger count of the broker is taken over", "take.go", "		m.count = max(m.count, m.brokerCount)\n", ""},
	{"the broker's count of a batch is ignored", "arrive.go", "	if !m.entry.isBatch() {\n", "	if true {\n"},
	{"the first hand-over does not raise the count", "take.go", "	if m.delivered {\n		if !m.uncounted", "	if true {\n		if !m.uncounted"},
	{"a message that must not be handed out yet waits", "arrive.go", "		if c.Wait <= 0 {", "		if true {"},
	{"a due message that did not fail stays here", "due.go", "m.hasFailed() && g.isBetter", "g.isBetter"},
	{"a message that timed out may go to another consumer", "due.go", "	return m.cause == TimedOut || ", "	return "},
	{"a message may go to another consumer for its last delivery", "due.go", "g.o.isLast(m.count+1) || ", ""},
	{"messages may go to another consumer if the application mostly fails", "due.go", " || g.outcomes.mostlyFail()", ""},
	{"a message that is published elsewhere counts as failed", "ack.go", "outcome == Moved)", "false)"},
	{"a message of a key that has failed for long may go to another consumer", "due.go", " ||\n		g.o.Kind == KeyShared && m.firstFailed > 0 && now-m.firstFailed >= readyKeyShared", ""},
	{"a ready message that the application does not take may go to another consumer", "due.go", "	if g.o.hasOthers() {\n		g.clock.Set(&m.timer, now+g.readyTime())\n	}\n", ""},
	{"a snoozed message stays here", "due.go", "g.o.hasOthers() && m.cause != Snoozed && ", "g.o.hasOthers() && "},
	{"a batch with a held message stays here", "due.go", "e.in[Held] == 0 && e.busy == 0 && ", ""},
	{"a batch with a message that is being settled stays here", "due.go", " && e.busy == 0 && ", " && "},
	{"a batch with a settled message stays here", "due.go", " && (e.in[Settled] == 0 || g.o.IndexAcks == KeptIndexAcks)", ""},
	{"a batch with a settled message may go to another consumer if the broker keeps index acks", "due.go", "(e.in[Settled] == 0 || g.o.IndexAcks == KeptIndexAcks)", "e.in[Settled] == 0"},
	{"new and redelivered messages alternate", "take.go", "	if g.newIsNext && hasNew {", "	if false {"},
	{"a new message ends the turn of new messages", "take.go", "	g.newIsNext = false\n	g.describe(m, d)", "	g.describe(m, d)"},
	{"settled ids outlive a lost connection", "connection.go", "	g.beginEpoch(now)\n	if g.o.hasOthers()", "	g.beginEpoch(now)\n	for _, p := range g.partitions {\n		clear(p.settled.generations[:])\n	}\n	if g.o.hasOthers()"},
	{"settled messages are handed out again after an operator moved the cursor back", "connection.go", "	p.settled.forgetSure()\n", ""},
	{"an operator's reset takes effect only when the copies before it were read", "connection.go", "	p.coming[at] = append(p.coming[at], coming{", "	if p.settled.isSure(at.position) {\n		p.settled.forgetSure()\n	}\n	p.coming[at] = append(p.coming[at], coming{"},
	{"an acknowledgement is sure only after a while", "connection.go", "p.settled.isSure(at.position)}", "p.settled.hasEntry(at.position)}"},
	{"no acknowledgement becomes surer before its partition is calm", "aging.go", "	case p.calmEpoch == g.epoch:\n", "	default:\n"},
	{"a partition is not calm before the broker sent something", "aging.go", "p.sentEpoch == g.epoch && len(p.coming) == 0", "len(p.coming) == 0"},
	{"a partition is not calm before its queue was empty for a while", "aging.go", " && g.reading.idleAt >= max(p.sentAt, g.lossAt)+idleTime", ""},
	{"a partition is not calm before its connection is back", "aging.go", "	case g.connectedEpoch == g.epoch && g.reading", "	case g.reading"},
	{"settled ids are bounded", "aging.go", "settledBytes/uint64(len(g.partitions))", "1<<60"},
	{"settled ids are bounded though the application never waits", "aging.go", "	from := recent ", "	from := sure "},
	{"requests that no hand-over followed do not raise the count", "arrive.go", "		m.excess += r.excess(m.delivered && m.busy == 0)\n", ""},
	{"one of the requests after a failure raises the count", "request.go", "	case delivered:\n		return uint32(r.tries - 1)\n", ""},
	{"requests while another consumer is active are not requests in vain", "request.go", "p.group.connectedEpoch == p.group.epoch && !p.isInactive()", "p.group.connectedEpoch == p.group.epoch"},
	{"requests without a connection are not requests in vain", "request.go", "		r.tries = min(r.tries, inVain-1)\n", ""},
	{"a settled message that comes without a loss is no operator's reset", "connection.go", "	if p.calmEpoch == g.epoch {\n		return\n	}\n	p.lastSent", "	p.lastSent"},
	{"a bare id of a shared ledger is refused", "group.go", "	if known && p == nil {\n		return nil, ErrAmbiguous\n	}\n", "	if known && p == nil {\n		for _, p = range g.partitions {\n			return p, nil\n		}\n	}\n"},
	{"memory is limited", "memory.go", "	if g.memory+needs > g.o.MemoryLimit {\n		return\n	}\n", ""},
	{"the buffer of a batch counts once", "memory.go", "	if e.buffer == 0 {\n		needs += c.Buffer\n	}\n", "	needs += c.Buffer\n"},
	{"a batch keeps its newest buffer", "memory.go", "		m.body = c.Body //", "		// "},
	{"a settled message needs no memory", "ack.go", "	g.drop(m)\n	m.move(Settled)", "	m.move(Settled)"},
	{"a requested message needs no memory", "request.go", "	g.drop(m)\n	g.clock.Stop", "	g.clock.Stop"},
	{"a message whose last delivery times out becomes a dead letter here", "acktimeout.go", "	if g.o.isLast(m.count) && m.body != nil && !m.isStale() {", "	if false {"},
	{"copies outlive the loss of another partition's connection", "connection.go", "		if p.coming == nil || len(p.coming) > maxComing {\n", "		if true {\n"},
	{"a copy has the epoch in which the broker sent it", "connection.go", "	p.readEpoch, p.lastRead = c.epoch, ", "	p.readEpoch, p.lastRead = p.sentEpoch, "},
	{"copies that were cleared when a connection was lost are not requested", "connection.go", "return older.epoch < c.epoch && !p.isQueued(older) })", "return false })"},
	{"an older copy than the last dropped one does not end a gap that a dropped copy widened", "connection.go", "p.gap.requested, p.gap.last = true, place{}", "p.gap.requested = true"},
	{"the newest delivery is requested although upstream dropped it", "connection.go", "			m.id, m.entry.ack.repeated = c.object, true\n", ""},
	{"a dropped copy is requested after a further loss", "connection.go", "		if c.epoch != epoch && epoch != anyEpoch {\n", "		if c.epoch != epoch {\n"},
	{"a copy that was sent again in a later epoch is not missing", "connection.go", "		if c.epoch != epoch && epoch != anyEpoch {\n			continue\n		}\n", ""},
	{"an inactive consumer requests no copies of an earlier epoch", "connection.go", "		case c.epoch < g.epoch && p.isInactive(): // the active consumer gets it\n", ""},
	{"a copy that was not announced counts as sent in the present epoch", "arrive.go", "			epoch = g.epoch\n", "			_ = g.epoch\n"},
	{"a body that may be encrypted does not replace another", "memory.go", "if !c.Unannounced {", "if true {"},
	{"a copy of a new partition may be older than the last loss", "partition.go", "readEpoch: firstEpoch,", "readEpoch: g.epoch,"},
	{"giving back forgets what upstream's queue has", "connection.go", "		clear(p.coming)\n", ""},
	{"the delay of a message goes on after its transaction is aborted", "arrive.go", "m.busy > 0 || now < m.due:", "m.busy > 0:"},
	{"the message of an aborted transaction is handed out again", "arrive.go", "		case !m.undecided:\n", "		case true:\n"},
	{"the message of an aborted transaction is not handed out while it is busy", "arrive.go", "m.busy > 0 || now < m.due:", "now < m.due:"},
	{"the message of a transaction is forgotten in the end", "acktimeout.go", "	if m.undecided {\n		g.forget(now, m)\n		return\n	}\n", ""},
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

// TestMutants removes each rule and checks that another test of this package fails. It prints which test did.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.rule, " ", "-"), func(t *testing.T) {
			mutant := exploretest.Mutant{Rule: m.rule, File: m.file, With: m.with, Without: m.without}
			mutant.Check(t)
			if !*withMutants {
				return
			}
			out := mutant.Test(t, "-timeout=10m", "-skip", "TestMutants", ".", "-args", fmt.Sprintf("-deeper=%d", max(0, *exploretest.Deeper)))
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
