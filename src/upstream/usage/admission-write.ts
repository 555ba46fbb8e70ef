/** The write of an admission, for which the answer waits. It is told by calls, so that an ordinary request makes no promise for it. */
import type { Write } from '../../backends/store/queued-command.ts'

export class AdmissionWrite implements Write {
  #state: 'storing' | 'stored' | { error: unknown } = 'storing'
  #waiting: Write[] = []

  /** Of an admission whose write is a promise. */
  static of(durable: Promise<void>): AdmissionWrite {
    const write = new AdmissionWrite()
    durable.then(
      () => write.stored(),
      (error: unknown) => write.lost(error),
    )
    return write
  }

  stored(): void {
    this.#state = 'stored'
    for (const one of this.#take()) one.stored()
  }

  lost(error: unknown): void {
    this.#state = { error }
    for (const one of this.#take()) one.lost(error)
  }

  /** Calls one of both, at once where it is known. */
  tell(one: Write): void {
    if (this.#state === 'storing') this.#waiting.push(one)
    else if (this.#state === 'stored') one.stored()
    else one.lost(this.#state.error)
  }

  /** Fulfilled once it is stored; rejects with the error of a write that was lost. */
  promise(): Promise<void> {
    return new Promise((stored, lost) => this.tell({ stored, lost }))
  }

  #take(): Write[] {
    const waiting = this.#waiting
    this.#waiting = []
    return waiting
  }
}
