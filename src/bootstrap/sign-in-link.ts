/** `tollgate sign-in`: the present one-time link of the dashboard, which a running program with local sign-in keeps in DATA_DIR. */
import { readFile } from 'node:fs/promises'
import { embeddedPaths, type Config } from '../config/config.ts'

/** The link and a line feed. Throws an Error with a sentence when no program keeps one there, or the file may not be read. */
export async function signInLink({ DATA_DIR }: Pick<Config, 'DATA_DIR'>): Promise<string> {
  return readFile(embeddedPaths(DATA_DIR).signInLink, 'utf8').catch(({ code }: NodeJS.ErrnoException) => {
    if (code === 'ENOENT') throw new Error(`No program with local sign-in runs with DATA_DIR=${DATA_DIR}.`)
    throw new Error(`The sign-in link in ${DATA_DIR} cannot be read (${code}).`)
  })
}
