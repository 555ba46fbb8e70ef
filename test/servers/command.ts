import { spawn } from 'node:child_process'

/** Runs a command to its end in `cwd`, with `env` added to the environment. Resolves with its output; rejects with the end of the output when it fails or cannot start. */
export function command(program: string, args: string[], cwd?: string, env: Record<string, string> = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
    let printed = ''
    const keep = (chunk: Buffer): void => void (printed += chunk)
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    child.on('error', reject)
    child.on('close', (code, signal) => {
      if (code === 0) resolve(printed)
      else reject(new Error(`${program} ${args[0]} ended with ${signal ?? code}:\n${printed.trimEnd().split('\n').slice(-20).join('\n')}`))
    })
  })
}
