import { readRegular } from '../../bounded-file.ts'

/** Of a kubeconfig, a certificate or a token; a kubeconfig of a thousand clusters has less. */
const MOST_BYTES = 1024 * 1024

/** The text of a regular file; null if it is not there. Throws an Error of one sentence that names the path, never what is in it. */
export async function readIfThere(path: string): Promise<string | null> {
  const file = await readRegular(path, MOST_BYTES).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return null
    throw new Error(`RESOURCES_URL: ${path} cannot be read (${error.code}): let this process read it.`)
  })
  if (file?.outcome === 'refused') throw new Error(`RESOURCES_URL: ${path} has to be a regular file of at most 1 MiB.`)
  return file && file.bytes.toString()
}

/** As `readIfThere`, without white space at its ends, of a file that has to be there and say something. */
export async function readCredential(path: string): Promise<string> {
  const text = (await readIfThere(path))?.trim()
  if (!text)
    throw new Error(`RESOURCES_URL: ${path} is ${text === '' ? 'empty' : 'not there'}: put the credential there, or correct what names it.`)
  return text
}
