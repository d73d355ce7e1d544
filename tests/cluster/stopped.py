"""The program of the runs that are stopped at any point and go on; CASE in its environment says what one of them does.

A run has stores, made in the order of their updaters. Each step pushes every key of every store once, and the last line of a
rank is a digest of all values that it reads.
"""

PROGRAM = """
import hashlib, json
case = json.loads(os.environ["CASE"])
KIND, STEPS, BEGIN = case["kind"], case["steps"], case.get("begin", 0)
IDS = np.array([1, 5, 2**40, 7, 11])

class Own(mx.optimizer.Optimizer):
    def create_state(self, index, weight):
        return mx.nd.zeros(weight.shape), {"sum": np.zeros(weight.shape, "f4")}
    def update(self, index, weight, grad, state):
        self._update_count(index)
        state[0][:] = state[0] * 0.75 + grad / self._index_update_count[index]
        state[1]["sum"] += grad.asnumpy()
        weight -= state[0] * 0.125 + mx.nd.array(state[1]["sum"]) * 0.01

class OwnOfArrays(mx.optimizer.Optimizer):
    def create_state(self, index, weight):
        return mx.nd.zeros(weight.shape), mx.nd.zeros(weight.shape)
    def update(self, index, weight, grad, state):
        self._update_count(index)
        state[0][:] = state[0] * 0.75 + grad * (self.rescale_grad / self._index_update_count[index])
        state[1][:] = state[1] + grad
        weight -= state[0] * 0.125 + state[1] * 0.01

class Harmonic(mx.lr_scheduler.LRScheduler):
    def __call__(self, num_update):
        return self.base_lr / num_update

def program():
    return mx.Program("program own\\nparam rate 0.125\\nstate m\\nold = mul m 0.75\\nnew = add old sum\\n"
                      "step = mul new rate\\nv = sub value step\\nm <- new\\nvalue <- v\\n")

def create():
    return mx.kv.create(KIND, **({} if KIND == "local" else {"deterministic": True}))

def factor_schedule():
    return mx.lr_scheduler.FactorScheduler(step=3, factor=0.5, base_lr=0.1)

class Keys:
    # Two keys whose gradients depend on their values, element by element.
    names = ("a", "b")
    def __init__(self, updater):
        self.updater, self.kv = updater, create()
        self.residuals = {}
        self.make(self.kv)
    def make(self, kv):
        if self.updater == "compression" and not case.get("drops"):
            kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        kv.init(list(self.names), [np.linspace(-1, 1, n).astype("f4") for n in (5, case["size"])])
        if self.updater == "momentum":
            kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.05, momentum=0.9, wd=0.01))
        if self.updater == "adam":
            kv.set_optimizer(mx.optimizer.Adam(lr_scheduler=factor_schedule()))
        if self.updater == "own schedule":
            kv.set_optimizer(mx.optimizer.SGD(momentum=0.5, lr_scheduler=Harmonic(0.5)))
        if self.updater == "own":
            kv.set_optimizer(Own() if KIND == "local" else program())
        if self.updater == "function":
            def momentum(key, grad, weight):
                m = kv.state("m")
                m *= 0.75
                m += grad
                weight -= m * 0.125
            kv.set_updater(momentum)
    def begin(self):
        return BEGIN
    def rounds(self):
        return {key: max(self.kv.round(key), BEGIN) for key in self.names}
    def read(self, key):
        return self.kv.pull(key).asnumpy()
    def push(self, key, value):
        self.kv.push(key, value)
    def gradient(self, key, step):
        factor = np.float32(0.1 * (self.kv.rank + 1))
        return self.read(key) * factor + np.float32(((step * 7 + self.kv.rank * 3) % 11 - 5) / 8)
    def sent(self, key, step, gradient):
        # Elements that compression sends of a gradient; the residual is lost behind the rounds of case["drops"].
        if step - 1 in case["drops"].get(str(self.kv.rank), {}).get(key, []):
            self.residuals.pop(key, None)
        owed = self.residuals.get(key, np.float32(0)) + gradient
        some = np.where(owed >= 0.5, np.float32(0.5), np.where(owed <= -0.5, np.float32(-0.5), np.float32(0)))
        self.residuals[key] = owed - some
        return some
    def step(self, step):
        for key in self.names:
            if KIND == "dist_async" or self.kv.round(key) < step:
                gradient = self.gradient(key, step)
                if self.updater == "compression" and case.get("drops"):
                    gradient = self.sent(key, step, gradient)
                self.push(key, gradient)
                pushed()
            one_more_is_done()
    def save(self, path):
        self.kv.save(path)
    def load(self, path):
        self.kv.load(path)
    def values(self):
        return [self.read(key) for key in self.names]

class Tables(Keys):
    def make(self, kv):
        mx.random.seed(3)  # of rows that nobody has pushed
        kv.init_table("a", 3, admit=2, evict={"age": 4}, optimizer=mx.optimizer.Adam(learning_rate=0.01))
        kv.init_table("b", 2, initializer=mx.init.Uniform(0.5))
        kv.set_optimizer(mx.optimizer.Adam(lr_scheduler=factor_schedule()))
    def read(self, key):
        return self.kv.pull_rows(key, IDS).copy()
    def gradient(self, key, step):
        some = np.arange(len(IDS)) % 3 != step % 3
        return IDS[some], super().gradient(key, step)[some]
    def push(self, key, rows):
        self.kv.push_rows(key, *rows)
    def values(self):
        ids = [np.sort(self.kv.export_rows(key)[0]) for key in self.names] if self.kv.rank == 0 else []
        return super().values() + ids

class Notes(Keys):
    # The number of steps that this worker has made, for a job without rounds.
    names = ("steps",)
    def make(self, kv):
        kv.init_table("steps", 1, dtype="int64")
    def begin(self):
        return max(int(np.asarray(self.read("steps")).ravel()[0]), BEGIN)
    def read(self, key):
        return self.kv.pull_rows(key, [self.kv.rank]).copy()
    def gradient(self, key, step):
        return [self.kv.rank], np.array([[step]])
    def push(self, key, rows):
        self.kv.push_rows(key, *rows)

class Helped:
    # A model that an optimizer for a framework trains through the store.
    def __init__(self, updater):
        self.updater, self.kv = updater, create()
        self.make()
        self.offset = 0
        self.catch_up()
    def begin(self):
        return BEGIN
    def rounds(self):
        return {"steps": self.opt.steps + self.offset}
    def catch_up(self):
        pass
    def step(self, step):
        if self.opt.steps + self.offset < step:
            self.make_step(step)
            pushed()
            assert self.opt.steps + self.offset == step, (self.opt.steps, self.offset, step)
        one_more_is_done()
    def save(self, path):
        self.kv.save(path)
    def load(self, path):
        self.kv.load(path)
        if KIND == "dist_async":  # counts no rounds
            self.offset = BEGIN - self.opt.steps
        self.catch_up()

class Torch(Helped):
    def make(self):
        import tensorkv.torch, torch
        torch.set_num_threads(1)
        torch.manual_seed(7 + self.kv.rank)
        self.torch, self.scheduler = torch, None
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
        named = self.model.named_parameters()
        if self.updater == "Trainer":
            self.opt = mx.torch.Trainer(named, mx.optimizer.Adam(learning_rate=0.05), kvstore=self.kv)
        elif self.updater == "Trainer by workers":
            self.opt = mx.torch.Trainer(named, OwnOfArrays(), kvstore=self.kv, update_on_kvstore=False)
        else:
            by = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.01)
            if self.updater == "KVOptimizer by workers":
                by = torch.optim.AdamW(self.model.parameters(), lr=0.05)
            self.opt = mx.torch.KVOptimizer(named, self.kv, by, overlap=case["overlap"])
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.opt, 3, 0.5)
    def catch_up(self):
        for _ in range(self.opt.steps + self.offset if self.scheduler else 0):
            self.scheduler.step()
    def make_step(self, step):
        self.model.zero_grad()
        x = self.torch.randn(6, 4, generator=self.torch.Generator().manual_seed(step * 31 + self.kv.rank))
        if case["linear"]:
            loss = sum((p * x[0, 0]).sum() for p in self.model.parameters())
        else:
            loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        if self.scheduler:
            self.opt.step()
            self.scheduler.step()
        else:
            if self.updater == "Trainer":
                self.opt.set_learning_rate(0.05 / (1 + step % 4))
            self.opt.step(self.kv.num_workers)
    def save(self, path):
        if not case.get("by_states"):
            return super().save(path)
        states = {"model": self.model.state_dict(), "opt": self.opt.state_dict()}
        if self.scheduler:
            states["scheduler"] = self.scheduler.state_dict()
        if self.kv.rank == 0:
            self.torch.save(states, path)
    def load(self, path):
        if not case.get("by_states"):
            return super().load(path)
        states = self.torch.load(path, weights_only=True)
        self.model.load_state_dict(states["model"])
        self.opt.load_state_dict(states["opt"])
        if self.scheduler:
            self.scheduler.load_state_dict(states["scheduler"])
        self.offset = BEGIN - self.opt.steps
    def values(self):
        return [p.detach().numpy() for p in self.model.parameters()]

class Jax(Helped):
    def make(self):
        import jax, tensorkv.jax
        first = {n: np.linspace(-1 - self.kv.rank, 1, np.prod(s), dtype="f4").reshape(s) for n, s in
                 (("v", (4, 5)), ("bias", (5,)), ("w", (5, 1)), ("shift", (1,)))}
        self.opt = mx.jax.KVOptimizer(first, self.kv, mx.optimizer.Adam(lr_scheduler=factor_schedule()))
        def loss(params, x):
            if case["linear"]:
                return sum(params[name].sum() for name in params) * x[0, 0]
            y = jax.numpy.tanh(x @ params["v"] + params["bias"]) @ params["w"] + params["shift"]
            return ((y - x.sum(1, keepdims=True)) ** 2).mean()
        self.gradients = jax.jit(jax.grad(loss))
    def make_step(self, step):
        x = np.random.default_rng(step * 31 + self.kv.rank).normal(size=(6, 4)).astype("f4")
        self.opt.step(self.gradients(self.opt.params, x))
    def values(self):
        return [np.asarray(self.opt.params[name]) for name in sorted(self.opt.params)]

CLASSES = {"table": Tables, "notes": Notes, "JAX": Jax}
CLASSES.update({name: Torch for name in ("KVOptimizer", "KVOptimizer by workers", "Trainer", "Trainer by workers")})

def path_of(number):
    return os.path.join(case["save"], str(number))

def pid_of_server(rank):
    # The launcher has started this process and its servers.
    with open(f"/proc/{os.getppid()}/task/{os.getppid()}/children") as file:
        children = file.read().split()
    for pid in children:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\\0")
        if b"TKV_ROLE=server" in variables and f"TKV_RANK={rank}".encode() in variables:
            return int(pid)
    raise AssertionError(f"there is no server {rank}")

done, is_new = 0, False
def pushed():
    global is_new
    is_new = True

def one_more_is_done():
    # Kills the victim of the case at its moment, once.
    global done
    done += 1
    kill = case.get("kill")
    if kill and (kill["rank"], kill["step"], kill["done"]) == (stores[0].kv.rank, step, done):
        if not os.path.exists(kill["mark"]):
            open(kill["mark"], "w").close()
            victims = {"worker": os.getpid, "launcher": os.getppid, "server": lambda: pid_of_server(kill["server"])}
            os.kill(victims[kill["victim"]](), signal.SIGKILL)

stores = [CLASSES.get(updater, Keys)(updater) for updater in case["updaters"]]
if BEGIN:
    for number, store in enumerate(stores):
        store.load(path_of(number))
rank = stores[0].kv.rank
print(f"rank {rank} begins behind", json.dumps([store.rounds() for store in stores]), flush=True)
for step in range(max(store.begin() for store in stores) + 1, STEPS + 1):
    done, is_new = 0, False
    for store in reversed(stores):
        store.step(step)
    if is_new:
        time.sleep(case.get("pace", 0))
    if step == case.get("save_at"):
        for number, store in enumerate(stores):
            store.save(path_of(number))
digest = hashlib.sha256()
for store in stores:
    for value in store.values():
        digest.update(np.ascontiguousarray(value).tobytes())
if KIND != "local":
    stores[0].kv.barrier()
print(f"rank {rank} ends with {digest.hexdigest()}", flush=True)
for store in stores:
    store.kv.close()
"""
