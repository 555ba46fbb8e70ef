/**
 * Keeps the keyboard's place. When the element that has the focus is removed or disabled, as Reveal is by the key that it shows, browsers
 * move the focus to the top of the page; here it goes to the nearest control that took its place.
 */
const FOCUSABLE = 'a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled), textarea:not(:disabled), [tabindex="0"]'

/** The element that had the focus last, and those around it, the nearest first. */
let last: { element: HTMLElement; around: Element[] } | null = null
let wasDisabled: HTMLElement | null = null
/** A control that is disabled while it works is often enabled again sooner. */
const BUSY_MS = 400

/** Watches the page from now on. */
export function keepFocus(): void {
  document.addEventListener('focusin', ({ target }) => {
    if (!(target instanceof HTMLElement) || target === document.body) return
    const around: Element[] = []
    for (let each = target.parentElement; each && each !== document.body; each = each.parentElement) around.push(each)
    last = { element: target, around }
  })
  // A person who presses beside every control means to leave it.
  document.addEventListener('pointerdown', () => (last = null))
  new MutationObserver(() => requestAnimationFrame(() => mend())).observe(document.body, {
    subtree: true,
    childList: true,
    attributeFilter: ['disabled'],
  })
}

/** `isLate`: it was disabled some time ago. */
function mend(isLate = false): void {
  if (!last || document.activeElement !== document.body || !document.hasFocus()) return
  const { element, around } = last
  const isDisabled = element.isConnected && element.matches(':disabled')
  if (isDisabled && !isLate) {
    wasDisabled = element
    setTimeout(() => mend(true), BUSY_MS)
    return
  }
  if (element.isConnected && !isDisabled) return wasDisabled === element ? element.focus() : undefined
  const near = around.filter((each) => each.isConnected).flatMap((each) => [...each.querySelectorAll<HTMLElement>(FOCUSABLE)])
  near.find((each) => each.checkVisibility())?.focus({ preventScroll: true })
}
