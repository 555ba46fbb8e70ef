/** What the tests of the AI Room do on its page. */
import type { Locator, Page } from 'playwright-core'

export const prompt = (page: Page): Locator => page.getByRole('textbox', { name: 'Prompt' })

/** A GET of the session, as JSON, with its status. */
export async function read(page: Page, path: string): Promise<{ status: number; body: { data: Record<string, unknown>[]; error?: { code: string } } }> {
  const response = await page.request.get(new URL(path, page.url()).href)
  return { status: response.status(), body: await response.json() }
}

/** The newest tasks of a collection. */
export async function tasks(page: Page, collection: 'generations' | 'operations'): Promise<Record<string, unknown>[]> {
  return (await read(page, `/dashboard/api/media/${collection}`)).body.data
}

export async function make(page: Page, words: string): Promise<void> {
  await prompt(page).fill(words)
  await press(page, 'Create')
  await done(page)
}

/** Presses the button that spends, once the price is there. */
export async function press(page: Page, name: 'Create' | 'Run'): Promise<void> {
  await page.locator('.price[data-state="quoted"]').waitFor()
  await page.getByRole('button', { name, exact: true }).click()
}

/** What the result of a task is downloaded as, at the end of its address. */
const NAME = /&name=[\w-]+$/
const DOWNLOAD = '.room-stage a.primary[download]'

/** Presses Run and waits for the result of that operation in place of the one before. Returns the address of the result. */
export async function run(page: Page): Promise<string> {
  const before = page.locator(DOWNLOAD)
  const [name = 'none'] = (await before.count()) > 0 ? (NAME.exec((await before.getAttribute('href')) ?? '') ?? []) : []
  await press(page, 'Run')
  await page.locator(`${DOWNLOAD}:not([href$="${name}"])`).waitFor()
  return done(page)
}

/** Returns the address of the result, without the name under which it is downloaded. */
export async function done(page: Page): Promise<string> {
  const link = page.locator(DOWNLOAD)
  await link.waitFor()
  return ((await link.getAttribute('href')) ?? '').replace(NAME, '')
}

/** Resolves once an element has been there, however shortly. */
export function appears(page: Page, selector: string): Promise<unknown> {
  return page.evaluate(`new Promise((seen) => {
    const look = () => document.querySelector(${JSON.stringify(selector)}) && (observer.disconnect(), seen())
    const observer = new MutationObserver(look)
    observer.observe(document.body, { childList: true, subtree: true })
    look()
  })`)
}

export function choose(page: Page, name: string): Promise<void> {
  return page.locator('.kind', { hasText: name }).click()
}

/** Takes the result on the stage as the input. */
export function useResult(page: Page): Promise<void> {
  return page.locator('.room-stage').getByRole('button', { name: 'Use as input' }).click()
}

/** Gives a file to the picker. */
export async function pick(page: Page, file: { name: string; mimeType: string; buffer: Buffer }): Promise<void> {
  await page.getByLabel('File to upload').first().setInputFiles(file)
}

/** Waits until a picture of that name is the source. */
export function isSource(page: Page, name: string): Promise<void> {
  return page.getByAltText(`Source: ${name}`, { exact: true }).waitFor()
}
