/** A process that consumes `image` messages at the address in its argument, prints each one, and closes the broker and exits on SIGTERM. Importers start it by `member`. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Test } from 'tap'
import { openBroker } from '../../../src/backends/broker/broker.ts'
import { ready } from '../../contracts/broker.ts'

type Member = {
  /** Resolves once it has printed that line. */
  prints(line: string): Promise<void>
  kill(): Promise<void>
  /** Sends SIGTERM and waits until it has exited. */
  end(): Promise<{ code: number | null; stderr: string }>
}

export function member(t: Test, url: string): Member {
  const child = spawn(process.execPath, [import.meta.filename, url], { stdio: ['ignore', 'pipe', 'pipe'], env: {} })
  const ended = once(child, 'close')
  let printed = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => (printed += chunk))
  child.stderr.on('data', (chunk) => (stderr += chunk))
  const kill = async () => {
    child.kill('SIGKILL')
    await ended
  }
  t.teardown(kill)
  return {
    async prints(line) {
      while (!printed.split('\n').includes(line)) {
        if (child.exitCode !== null) throw new Error(`it ended before it printed ${line}: ${stderr}`)
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
    },
    kill,
    async end() {
      child.kill('SIGTERM')
      await ended
      return { code: child.exitCode, stderr }
    },
  }
}

async function run(url: string): Promise<void> {
  const broker = await openBroker(url)
  broker.consume('image', async ({ kind }) => console.log(`received ${kind}`))
  const watch = setInterval(() => console.log(broker.health().ok ? 'healthy' : 'unhealthy'), 50)
  process.once('SIGTERM', () => {
    clearInterval(watch)
    broker.publish(ready('image', 'last'))
    // As the program does: a connection of kafkajs to a frozen broker can outlast its client.
    void broker.close().then(() => process.exit())
  })
}

if (import.meta.main) await run(process.argv[2] ?? '')
