package cmd

import "time"

// completionTimeout bounds what a tab may cost. The completion command itself is cobra's.
const completionTimeout = 500 * time.Millisecond
