/**
 * The program of a child process: runs `run` of a file of this folder, which the first argument names, on the job in the second one. It prints lines of JSON,
 * `{"percent": 40}` while it works and its result last. Whatever is thrown, apart from an InputError, ends it with a stack trace on standard error.
 */
import { resultOf, type Progress, type Size } from './operation-result.ts'

const [file, job = ''] = process.argv.slice(2)
const print = (line: object): unknown => process.stdout.write(`${JSON.stringify(line)}\n`)
const { run } = (await import(`./${file}`)) as { run(job: unknown, progress: Progress): Promise<Size> }
print(await resultOf(run(JSON.parse(job), (percent) => print({ percent }))))
