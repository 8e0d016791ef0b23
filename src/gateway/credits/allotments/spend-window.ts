// A token's spending in the last two seconds, in four slots of half a second.

const slotMs = 500;
const slots = 4;

export class SpendWindow {
  readonly #credits: bigint[] = Array.from({ length: slots }, () => 0n);
  #slot = 0;

  add(nowMs: number, credits: bigint): void {
    this.#moveTo(nowMs);
    const index = this.#slot % slots;
    this.#credits[index] = (this.#credits[index] ?? 0n) + credits;
  }

  total(nowMs: number): bigint {
    this.#moveTo(nowMs);
    return this.#credits.reduce((sum, credits) => sum + credits, 0n);
  }

  #moveTo(nowMs: number): void {
    const slot = Math.floor(nowMs / slotMs);
    const passedSlots = Math.min(Math.max(slot - this.#slot, 0), slots);
    for (let step = 1; step <= passedSlots; step += 1)
      this.#credits[(slot - passedSlots + step) % slots] = 0n;
    this.#slot = Math.max(slot, this.#slot);
  }
}
