/** Tollgate with the no-op engine, in a process of its own: the program as `src/main.ts` puts it together, and one engine more. */
import pino from 'pino'
import { buildApp, openDoors, openOps } from '../src/app.ts'
import { readConfig } from '../src/config.ts'
import { openNoop } from './noop.ts'

const { config } = readConfig(process.env)
const log = pino({ level: config.LOG_LEVEL, base: { role: config.ROLE }, timestamp: pino.stdTimeFunctions.isoTime })
const surroundings = { config, log, clock: Date.now }
let ready = false
const ops = await openOps({ host: config.OPS_HOST, port: config.OPS_PORT, log, checks: async () => [{ name: 'program', ok: ready, detail: '' }] })
const doors = await openDoors(surroundings, (_name, open) => open())
const app = buildApp(surroundings, doors, ops.registry)
app.engines.add('noop', openNoop)
await app.listen({ host: config.HOST, port: config.PORT })
ready = true
process.once('SIGTERM', () => void app.close().then(() => doors.close()).then(() => ops.close()))
