import { spawn } from 'node:child_process'

export type Outcome = { code: number | null; stdout: string; stderr: string }

/** `signal` kills the client, with the processes that it started. */
export type RunOptions = { cwd: string; env: Record<string, string>; signal?: AbortSignal | undefined }

/** Runs a client to its end, with these environment variables and `PATH` only. Rejects when it cannot be started. */
export function run(program: string, args: string[], { cwd, env, signal }: RunOptions): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd, env: { PATH: process.env['PATH'], ...env }, stdio: ['ignore', 'pipe', 'pipe'], detached: signal !== undefined })
    // Of a detached process the id is that of its group, too.
    signal?.addEventListener('abort', () => child.pid && child.exitCode === null && process.kill(-child.pid, 'SIGKILL'))
    const outcome: Outcome = { code: null, stdout: '', stderr: '' }
    child.stdout.setEncoding('utf8').on('data', (text: string) => (outcome.stdout += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (outcome.stderr += text))
    child.on('error', reject)
    child.on('close', (code) => resolve({ ...outcome, code }))
  })
}
