// Long computations in short slices, between which the browser reacts to input and draws.

const SLICE_MILLISECONDS = 8; // half a frame at 60 frames per second

/** One computation at a time: a generator, whose steps are short. Starting another one cancels the last. */
class SlicedWork {
  /** Computations that were started and that were completed. */
  started = 0;
  completed = 0;
  #steps = null;
  #then = null;
  #timer = null;

  /** Whether a computation is not yet complete. */
  get busy() {
    return this.#steps !== null;
  }

  /** Run `steps` later, and `then` after the last of them. */
  start(steps, then) {
    clearTimeout(this.#timer);
    [this.#steps, this.#then] = [steps, then];
    this.started += 1;
    this.#timer = setTimeout(() => this.#run(SLICE_MILLISECONDS));
  }

  /** Run all steps that are left now. */
  finish() {
    if (!this.#steps) return;
    clearTimeout(this.#timer);
    this.#run(Infinity);
  }

  #run(milliseconds) {
    const end = performance.now() + milliseconds;
    do {
      if (!this.#steps.next().done) continue;
      const then = this.#then;
      [this.#steps, this.#then] = [null, null];
      this.completed += 1;
      then();
      return;
    } while (performance.now() < end);
    this.#timer = setTimeout(() => this.#run(SLICE_MILLISECONDS));
  }
}
