// A stream of events that is opened again whenever it ends, whatever ended it.

const AGAIN = 1000;
// A dashboard whose bus hangs says something each four seconds.
const SILENCE = 8000;

export class Stream {
  #url; #handlers; #onState; #silence; #source = null; #timer = 0;

  // *handlers*: event name to function of its data. *onState*: told true with each event, false when it is lost.
  // *isChatty*: the server says something every second, so that silence means that it is gone.
  constructor(url, handlers, onState, { isChatty = false } = {}) {
    [this.#url, this.#handlers, this.#onState] = [url, handlers, onState];
    this.#silence = isChatty ? SILENCE : 0;
  }

  open() {
    this.close();
    const source = new EventSource(this.#url);
    this.#source = source;
    for (const [name, handle] of Object.entries(this.#handlers)) {
      source.addEventListener(name, (event) => {
        this.#expect();
        this.#onState(true);
        handle(JSON.parse(event.data));
      });
    }
    source.addEventListener("open", () => this.#expect());
    source.addEventListener("error", () => {
      this.#onState(false);
      // A browser asks again by itself, except where it was answered by something else than a stream.
      if (source.readyState === EventSource.CLOSED) this.#later(AGAIN);
    });
    this.#expect();
  }

  close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #expect() {
    clearTimeout(this.#timer);
    if (this.#silence) {
      this.#timer = setTimeout(() => {
        this.#onState(false);
        this.open();
      }, this.#silence);
    }
  }

  #later(milliseconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.open(), milliseconds);
  }
}
