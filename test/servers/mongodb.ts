import { chown, mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { MongoClient } from 'mongodb'
import type { Test } from 'tap'
import { installed } from './client.ts'
import { command } from './command.ts'
import { accepts, freePort, start, type Running } from './process.ts'
import { serve, type Server } from './server.ts'
import { own, shared } from './shared.ts'

export type MongodbOptions = {
  /** Clients must log in: `url` has the credentials of an administrator, `readOnlyUrl` those of a user with read access. */
  auth?: boolean
  /** The listening address, one of the machine's; loopback if absent. */
  address?: string
}

/** URLs without a database name. `readOnlyUrl` has the same data, and is '' without `auth`. `version` names the parts of the server with their versions. */
export type Mongodb = Server & { url: string; readOnlyUrl: string; version: string }

export const MONGODB_NAMES = ['ferretdb', 'postgres-documentdb']

const SETTINGS = `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_preload_libraries = 'pg_cron,pg_documentdb_core,pg_documentdb'
cron.database_name = 'postgres'
cron.host = '127.0.0.1'
max_connections = 200
dynamic_shared_memory_type = 'mmap'
# What a process has written outlives its SIGKILL without it; only the machine's own end would be worse.
fsync = off
`

const TABLES = `
CREATE EXTENSION documentdb CASCADE;
CREATE ROLE keeper LOGIN PASSWORD 'keeper-secret' IN ROLE documentdb_admin_role;
CREATE ROLE reader LOGIN PASSWORD 'reader-secret' IN ROLE documentdb_readonly_role, pg_read_all_data;
`

/**
 * As root in new mount and PID namespaces, whose processes all end with the first: executes the given command,
 * as the user postgres, in Debian's root folder, with the test's folder at /mnt.
 */
const ENTER = `
mount --bind "$2" "$1/mnt"
mount -t proc proc "$1/proc"
root=$1 && shift 2
exec chroot "$root" setpriv --reuid postgres --regid postgres --init-groups "$@"`

/** Initializes the data at the first start, and executes the server. An interrupted initialization is repeated. */
const POSTGRES = `
export PATH=/usr/lib/postgresql/18/bin:$PATH
if [ ! -e /mnt/data ]; then
  rm -rf /mnt/making
  initdb -D /mnt/making -A trust -E UTF8 --locale=C.UTF-8 --no-sync
  echo "$2" >>/mnt/making/postgresql.conf
  echo "$3" | tr '\\n' ' ' | postgres --single -j -D /mnt/making postgres
  mv /mnt/making /mnt/data
fi
exec postgres -D /mnt/data -p "$1"`

/** Debian's root folder: the entry's program is a path in it. */
function root(): string {
  return installed('postgres-documentdb').replace(/\/usr\/lib\/.*/, '')
}

function startPostgres(folder: string, port: number): Promise<Running> {
  const alone = ['--mount', '--propagation', 'private', '--pid', '--ipc', '--fork', '--kill-child']
  const inside = ['sh', '-euc', POSTGRES, 'sh', `${port}`, SETTINGS, TABLES]
  return start({
    argv: ['unshare', ...alone, 'sh', '-euc', ENTER, 'sh', root(), folder, ...inside],
    ready: async (printed) => printed.includes('ready to accept connections') && (await accepts(port)),
  })
}

function startFerretdb(folder: string, at: string, postgres: string, auth: boolean): Promise<Running> {
  const addresses = [`--listen-addr=${at}`, '--debug-addr=-', `--postgresql-url=postgres://${postgres}/postgres`]
  return start({
    argv: [installed('ferretdb'), auth ? '--auth' : '--no-auth', '--telemetry=disable', '--log-level=warn', `--state-dir=${folder}`, ...addresses],
    ready: () => answers(`mongodb://${at}/`),
  })
}

/** `hello` needs no login. Each attempt uses a new client, since a client whose first connection failed stays broken. */
async function answers(url: string): Promise<boolean> {
  const client = new MongoClient(url, { serverSelectionTimeoutMS: 1000 })
  try {
    await client.db('admin').command({ hello: 1 })
    return true
  } catch {
    return false
  } finally {
    await client.close()
  }
}

/** Debian unstable changes, so the versions are read from the folder. */
async function madeOf(): Promise<string> {
  const packages = ['postgresql-18', 'postgresql-18-documentdb']
  const found = await command('chroot', [root(), 'dpkg-query', '--show', '--showformat=, ${Package} ${Version}', ...packages])
  return `FerretDB ${(await command(installed('ferretdb'), ['--version'])).match(/version: *(\S+)/)?.[1] ?? ''}${found}`
}

/** Starts FerretDB over PostgreSQL with the DocumentDB extension, which speaks MongoDB's protocol. */
export async function startMongodb({ auth = false, address = '127.0.0.1' }: MongodbOptions = {}): Promise<Mongodb> {
  const postgres = await freePort()
  const [at, readOnlyAt] = [`${address}:${await freePort()}`, `${address}:${await freePort()}`]
  const folders = (folder: string): [string, string, string] => [join(folder, 'postgres'), join(folder, 'ferretdb'), join(folder, 'read-only')]
  const server = await serve(
    async (folder) => {
      for (const each of folders(folder)) await mkdir(each)
      const { uid, gid } = await stat(join(root(), 'var/lib/postgresql'))
      await chown(folders(folder)[0], uid, gid)
    },
    async (folder, running) => {
      const [data, state, readOnlyState] = folders(folder)
      running.push(await startPostgres(data, postgres))
      running.push(await startFerretdb(state, at, `postgres@127.0.0.1:${postgres}`, auth))
      // FerretDB uses its one PostgreSQL user for every login: access rights are that user's.
      if (auth) running.push(await startFerretdb(readOnlyState, readOnlyAt, `reader@127.0.0.1:${postgres}`, auth))
    },
  )
  const version = await madeOf()
  if (!auth) return { ...server, version, url: `mongodb://${at}/`, readOnlyUrl: '' }
  const url = `mongodb://keeper:keeper-secret@${at}/`
  return { ...server, version, url, readOnlyUrl: `mongodb://reader:reader-secret@${readOnlyAt}/` }
}

/** The shared server's url, without a database name (`MONGODB_URL`); null if the suite is skipped. */
export function mongodb(t: Test): Promise<string | null> {
  return shared(t, 'MONGODB_URL', MONGODB_NAMES, startMongodb)
}

/** A private server that the test may kill and freeze. Frozen, PostgreSQL's sessions still end the statement at hand. */
export function ownMongodb(t: Test, options: MongodbOptions = {}): Promise<Mongodb | null> {
  return own(t, MONGODB_NAMES, () => startMongodb(options))
}
