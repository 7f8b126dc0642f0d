// Package pulsartest is a Pulsar broker inside the test's process. It speaks the binary protocol to an unmodified pulsar-client-go and
// enough of the admin REST API for tests, starts in milliseconds, and can be made to fail:
//
//	func TestBilling(t *testing.T) {
//		broker := pulsartest.NewServer(t)
//		startBilling(t, broker.Client(t)) // your service
//		broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("one coffee")})
//		broker.DropConnections()
//		broker.Await(t, "orders", "billing", 5*time.Second, func(s pulsartest.Subscription) bool {
//			return s.Backlog == 0
//		})
//	}
//
// Outside of tests [Start] starts one, and [Server.Close] stops it. The file service_test.go tests a whole service that way. The broker keeps everything in memory, for as long as it runs, and is built for
// fidelity in what applications see, not for load.
//
// # What it does
//
// Topics are created on use, partitioned ones by [Server.CreatePartitionedTopic]. There are the four subscription types, durable or not,
// with redelivery and its counts, batches and their partial acknowledgement ([WithBatchIndexAcknowledgment], off by default as in Pulsar),
// cumulative acknowledgement, acknowledgement with response, chunks, delayed delivery, dead letters and retries as the client makes them,
// seek, unsubscribe, readers, patterns, schemas, access modes of producers, priorities of consumers, limits of unacknowledged messages,
// non-persistent topics, and topics that are terminated, deleted or unloaded. Messages are kept and forwarded byte for byte: encryption and
// compression are the clients' affair. The admin API has tenants, namespaces, topics, partitions, subscriptions (create, delete, skip,
// reset), schemas and statistics.
//
// # For tests
//
// [Server.Client] is a client for the test. [Server.Publish] stores messages without one. [Server.Await] waits until a subscription is as the
// test wants it, and says what it saw if that does not come. [Server.FastForward] moves the broker's clock: delayed messages are due now.
// [Server.Subscription], [Server.Messages], [Server.Topics] and [Server.Subscriptions] look inside.
//
// # Faults
//
//   - Connections: [Server.DropConnections], [Server.RefuseConnections]
//   - Topics: [Server.Unload], [Server.Terminate], [Server.CloseConsumers]
//   - Messages to consumers: [Server.PauseDispatch], [Server.ResumeDispatch]
//   - Anything else: a [Hook] sees every command in both directions, and lets it pass, loses it, delays it, answers it in the broker's
//     place, or closes the connection. Short forms of it are [Server.FailSends], [Server.SwallowSends], [Server.FailProducers],
//     [Server.FailSubscribes], [Server.DelayResponses] and [Server.DropAckResponses].
//
// Input that is not Pulsar's protocol closes its connection, with a warning in the log; the server goes on.
//
// # Same as Pulsar
//
// Scenarios are played on this broker and on real ones, side by side, and all that the brokers answer is compared (make fidelity). So many
// scenarios leave the same trace:
//
//	                            Pulsar 3.0    Pulsar 4.0    Pulsar 4.2
//	acknowledgements              15 of 15      15 of 15      15 of 15
//	batches                       15 of 15      15 of 15      15 of 15
//	redelivery counts             32 of 32      32 of 32      32 of 32
//	Shared and permits            11 of 11      11 of 11      11 of 11
//	Failover                        4 of 4        4 of 4        4 of 4
//	Key_Shared                     2 of 10      10 of 10      10 of 10
//	positions                     17 of 17      17 of 17      17 of 17
//	delayed delivery                8 of 8        8 of 8        8 of 8
//	producers                     14 of 17      17 of 17      17 of 17
//	topics and errors             13 of 14      14 of 14      14 of 14
//	partitions and names            7 of 8        8 of 8        6 of 8
//	schemas                       10 of 10      10 of 10      10 of 10
//	limits                         7 of 10      10 of 10      10 of 10
//	the Go client                 20 of 20      20 of 20      20 of 20
//	together                    175 of 191    191 of 191    189 of 191
//
// The broker does as Pulsar 4.0; docs/pulsartest.md says where the other versions differ.
//
// # What differs from the real broker
//
//   - There is no TLS, authentication, authorization, transaction, cluster, replication, deduplication, compaction, or topic watcher.
//     Transactions are refused; what else a client asks for of these is ignored.
//   - Policies are limits of unacknowledged messages of a topic, by the admin API; there are no others, such as retention, expiry, backlog
//     quotas or rates.
//   - Nothing is ever removed from a topic. The real broker may delete what all subscriptions have acknowledged, and a reader or a seek to
//     the beginning then misses it.
//   - A ledger ends only with Unload. The real broker also ends it by size and age.
//   - Of two schemas of one type every one is compatible. The real broker judges the evolution of Avro, JSON and Protobuf schemas.
//   - Topics load and unload in no time. The real broker takes up to seconds, in which clients back off.
//   - One thing happens after another. In the real broker a read of messages may cross a request: it may send a few more than a limit
//     of unacknowledged messages allows, or a copy that was acknowledged meanwhile.
//   - Error messages, and what the admin API calls rates, are its own; error codes are the real ones.
//
// # The client's own tests
//
// The package pulsar of pulsar-client-go v0.21.0 has 343 tests. 59 of them want what this broker has not: TLS, tokens, passwords, OAuth2,
// transactions, backlog quotas or Docker; or they reach into the client's types, or skip themselves. Of the other 284, 279 run here and
// pass, with batch-index acknowledgement and messages of up to 1 MiB as in the client's CI. These five do not run:
//
//   - TestProducerReconnectWhenBacklogQuotaExceed: it sets a backlog quota.
//   - TestWithDeadLetterTopicDeadLetterTopicProducerName and TestWithoutDeadLetterTopicDeadLetterTopicProducerName: they read dead
//     letters from the latest on, and may subscribe after the dead letter.
//   - TestZeroQueueConsumer_Chan and TestPriorityConsumer: they are run through redelivery.Subscribe, which differs there on purpose.
//
// The command is
//
//	go run ./test/upstream -all -on pulsartest -quick
//
// These pass about every other time, with any broker that hashes keys as Pulsar does: they want each of two consumers with random names to
// get one of three keys, two of which have neighboring hashes.
//
//   - TestConsumerKeyShared, TestConsumerKeySharedWithDelayedMessages, TestConsumerKeySharedWithOrderingKey
package pulsartest
