/** `node test/ships.ts <folder>`: starts the program that lies in that folder, as an image would, looks at /livez and /readyz, and stops it. */
import { start } from './flows/program.ts'

const [folder] = process.argv.slice(2)
if (folder === undefined) throw new Error('which folder?')
const program = await start({ folder, root: folder })
for (const path of ['/livez', '/readyz']) {
  const { status } = await fetch(`${program.opsUrl}${path}`)
  console.log(`${path} answers ${status}`)
  if (status !== 200) process.exitCode = 1
}
const { code, signal } = await program.stop()
console.log(`it stopped with ${signal ?? code}`)
if (code !== 0) process.exitCode = 1
