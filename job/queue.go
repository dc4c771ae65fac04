package job

// MaxQueueConcurrency is the highest limit that a queue can have.
const MaxQueueConcurrency = 1_000_000

// QueueName says whether a text can be the name of a queue.
func QueueName(name string) bool { return queueRE.MatchString(name) }
