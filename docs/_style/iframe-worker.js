/* Search without a server: browsers start no workers from disk, so the search's script runs in a hidden frame instead. */
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      const inside = this.frame.contentWindow;
      const page = inside.document;
      page.open();
      page.write("<!doctype html><body></body>");
      page.close();
      inside.postMessage = (data) => inside.eval("(d) => parent.postMessage(d, '*')")(data); // its source is the frame
      inside.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => load(page, next)), Promise.resolve());
      this.ready = load(page, url);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }

  const load = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      page.body.appendChild(script);
    });

  window.IFrameWorker = window.Worker = IFrameWorker;
})();
