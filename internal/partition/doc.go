// Package partition decides what happens to the messages of a subscription. Events and the time go in, decisions
// come out. The package takes no lock, reads no clock, starts no goroutine, and knows no type of
// pulsar-client-go: ids of deliveries and messages are any. So a test can play every short history.
//
// A [Group] has the partitions of a subscription. A [Partition] has entries, the units that the broker stores and
// sends. An entry has one message, or those of a batch. A message is in one of six states:
//
//	state   | a copy arrives         | nack      | ack succeeds | its time is over                       | connection lost
//	--------+------------------------+-----------+--------------+----------------------------------------+-----------------
//	unseen  | → held, delivered      | –         | –            | –                                      | –
//	held    | noted, kept if it fits | → waiting | → settled    | ack timeout: a nack that is due        | stale
//	waiting | noted, kept if it fits | –         | → settled    | here and fresh: → ready; else → asked  | stale
//	ready   | noted, kept if it fits | –         | → settled    | not taken for long: → asked            | stale
//	asked   | → held, delivered      | –         | → settled    | asked again; ten times in vain: unseen | –
//	settled | acknowledged again     | –         | –            | forgotten, oldest first                | –
//
// A message is busy while a call acknowledges or publishes it. A busy message is not handed out. TestTable has a
// row for each cell; TestExploration plays all short histories of small worlds; TestMutants removes each rule in
// turn and expects a failing test.
//
// Read message.go first. Then read arrive.go, nack.go, acktimeout.go, due.go, take.go and ack.go: they have the events.
// The sections below describe connection.go, request.go and settled.go.
//
// # Epochs
//
// Upstream reports that a connection was lost. It reports neither the partition nor the messages that the broker has
// sent to another consumer since. So each loss begins a new epoch, and a message has the epoch of its newest delivery.
// A message of an epoch before the last loss is stale: another consumer may have it. A stale message is never handed
// out from memory; it is requested when it is due. It is fresh again as soon as the broker sends a copy of it in the
// new epoch. A copy has the epoch in which the broker sent it, not the one in which it is read. An old copy is dropped
// if a newer copy of the same message is in upstream's queue. On Exclusive, and where the broker forgets the
// subscription with its connection, no other consumer can have a message, and nothing is stale. On Failover,
// [Group.Activate] begins an epoch for its partition.
//
// # Requests
//
// A due message that is not in memory is requested. On Shared and Key_Shared a request is for an entry, and ends when
// the last message that waits for it has come. On Exclusive and Failover the broker rewinds: it answers every request
// with everything that is not acknowledged. So a partition has one request under way. The answer begins with a copy
// that is not after the previous one, and ends with the furthest message that ever came.
//
// A request is repeated, with growing pauses, when the application has been reading and the partition was silent. Time
// that the application spends on a message does not count: the answer may be in upstream's queue. After ten requests in
// vain the message is another consumer's, or acknowledged elsewhere, and is forgotten. After a loss, no message is
// forgotten before all partitions have a connection again.
//
// Upstream drops messages that a new connection brings before upstream is ready for them, and the broker does not send
// these again by itself. Copies are numbered as they are sent, and read in that order. So a copy was dropped if a later
// one is read first, or if the application waits and the copy does not come. A dropped copy is requested. Where the
// broker rewinds, the dropped copy leaves a gap, and so does a copy that was sent before a Failover partition became
// active. The copies after a gap come too soon. They are dropped, and the broker is asked to rewind unless it does so
// by itself.
//
// # Settled messages
//
// A settled entry leaves the table, and its id goes into a bitmap. Every copy of it is acknowledged again. Ids outlive
// lost connections, since upstream's queue may have copies. An id becomes sure after some calm time: by then the broker
// has the acknowledgement. If the broker sends a sure id over a new connection, an operator has moved the cursor back.
// When that very message is read, all older copies have been read, and the sure ids are forgotten.
//
// Upstream counts the acknowledged messages of a batch for each delivery separately, and acknowledges the entry when
// one count is full. So the acknowledgement that completes a batch names the whole entry if the entry came more than
// once.
//
// # Memory
//
// Bodies are kept up to a limit. On Shared and Key_Shared a due message goes back to the broker although it is in
// memory, if another consumer may do better with it: see isBetterElsewhere and canReturn.
//
// # How to drive it
//
// Hold one lock around each call, and release it before calling upstream, a policy or an observer. Call [Group.Advance]
// after every call of a method with a parameter now, and at the time that [Group.NextTimer] returns, and carry out the
// decisions of Advance.
//
//	verb                      | calls
//	--------------------------+------------------------------------------------------------------------------
//	Receive                   | Take, else read upstream's channel and Arrive, until one of them delivers.
//	                          | ReceiverWaits before blocking, and ReceiverContinues after it
//	after a hand-over         | Recall, if a log of attempts knows more; the ack-timeout policy for Delivery.Count,
//	                          | then StartTimeout; Hold, if the application keeps the message waiting; Taken, if
//	                          | the application takes it only later, from a channel
//	Arrive returns AckAgain   | acknowledge Again in another goroutine; after an error another copy will come
//	Ack, AckID                | BeginAck. Late: nothing. Without an Object: upstream's AckID of the id. Otherwise
//	                          | upstream's AckID of Object, or of the entry if Whole; EndAck; if that returns an
//	                          | Again, acknowledge it too
//	AckID of a whole batch    | upstream's AckID, SettleEntry
//	AckCumulative             | Upto, upstream's AckIDCumulative, SettleUpto; if that returns an Again, as Ack
//	AckWithTxn                | BeginAck, upstream's AckWithTxn, EndAck with Undecided
//	Nack, NackWithDelay, …    | Find for the count, the policy, Nack. If IsLast: Nack, then as DeadLetter
//	NackID of a whole batch   | HeldOf, then Nack of each
//	DeadLetter, Reconsume…    | BeginAck, publish, upstream's AckID, EndAck
//	Decisions.DeadLetters     | Nack with the policy's delay, then as DeadLetter
//	InProgress                | Touch
//	Delivery, RedeliveryCount | Find
//	Reclaim                   | TakeBackStale, if Info.Stale
//	Chan                      | its goroutine does as Receive; PutBack returns a message that was not taken
//	RedeliverNow              | RedeliverNow
//	GiveBack                  | close upstream's consumer, GiveBack; Lost before the next one is subscribed
//	Seek                      | upstream's Seek, Forget
//
// Callbacks from upstream call [Group.Lost] at the start of each reconnection. From the first loss on, they call
// [Group.Sent] for each message, in the goroutine that receives it, before the message can be read. They call
// [Group.Connected] when all partitions have a connection again: without this call, no acknowledgement becomes sure and
// no request is given up. The listener calls Activate. The callback for a topic that vanishes calls Leave.
//
// # Known windows
//
// These are deliberately left open. They cost a duplicate or a count, never a message:
//
//   - After a lost connection on Shared, copies in upstream's queue are handed out, though the broker may have sent the
//     messages to another consumer. A copy is dropped only if the broker has sent its message here again by then.
//   - After a lost connection on Shared, waiting messages of partitions that kept their connection are requested, too,
//     and the broker counts that.
//   - A message that is requested while the broker sends it again by itself, after a lost connection on Shared, may be
//     handed out here and go to another consumer too.
//   - A message that upstream dropped while it reconnected is requested, and the broker counts that.
//   - A copy that upstream received late from a lost connection, and dropped, looks like one of the new connection: its
//     message counts as this consumer's for a second.
//   - A message that upstream cannot decrypt counts as sent after the last loss. It may be handed out here and go to
//     another consumer too.
//   - If the first answer to a request takes long, a second request brings another copy. If the message is requested
//     once more while that copy is in upstream's queue, it may be handed out here and go to another consumer too.
//   - Between a lost connection and the listener's report, a Failover consumer hands out from memory.
//   - A lost acknowledgement looks like an operator's reset if the broker does not send the message again for some calm
//     seconds, for instance because another consumer has it, and sends it after a further loss.
//   - An operator's reset does not bring back three kinds of messages: those acknowledged in the last seconds, those
//     acknowledged after a loss and before the broker sent a message of their partition again, and settled messages of
//     a batch that is not settled whole. After Wrap a reset brings back no message.
//   - A copy that was sent before a transaction began looks like the abort of the transaction.
//
// Upstream has one more window: it counts a message of a batch as acknowledged although the acknowledging call failed.
// Once the other messages of the batch are acknowledged, the broker forgets this one, too. The message still waits
// here, but does not outlive the process.
package partition
