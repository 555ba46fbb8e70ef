import { spawn } from 'node:child_process'

export type Outcome = { code: number | null; stdout: string; stderr: string }

/** Runs a client to its end, with these environment variables and `PATH` only. Rejects when it cannot be started. */
export function run(program: string, args: string[], options: { cwd: string; env: Record<string, string> }): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: options.cwd, env: { PATH: process.env['PATH'], ...options.env }, stdio: ['ignore', 'pipe', 'pipe'] })
    const outcome: Outcome = { code: null, stdout: '', stderr: '' }
    child.stdout.setEncoding('utf8').on('data', (text: string) => (outcome.stdout += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (outcome.stderr += text))
    child.on('error', reject)
    child.on('close', (code) => resolve({ ...outcome, code }))
  })
}
